"""Events of one line each, with features of their own: parsed once into columns, read from the copy, and written."""
