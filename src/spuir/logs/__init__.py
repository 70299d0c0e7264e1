"""Logs of decisions: opened wherever they are, joined with their rewards, cut into episodes, written."""

from spuir.logs.action_table import ActionTable, action_table
from spuir.logs.cut import Cut, cut_episodes
from spuir.logs.episode import Episode
from spuir.logs.join import Joined, join_logs
from spuir.logs.log import Log
from spuir.logs.open import open_log
from spuir.logs.parts import Part
from spuir.logs.rewards import Report, RewardRules
from spuir.logs.span import split_log
from spuir.logs.write import export_log, write_log

__all__ = ["ActionTable", "Cut", "Episode", "Joined", "Log", "Part", "Report", "RewardRules"]
__all__ += ["action_table", "cut_episodes", "export_log", "join_logs", "open_log", "split_log", "write_log"]
