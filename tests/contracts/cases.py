"""The policies on trial: every registered one with each preset, and the parameters that change what it does."""

from typing import Any

from spuir.policies import Policy, list_policies, make_policy

SMALL = {"sketch_size": 24}
KERNEL = {"n_features": 12}

EXTRA: dict[str, list[dict[str, Any]]] = {
    "auto": [
        {"landmarks": 12, "floor": 0.1, "forgetting": 0.7},
        {"landmarks": 12, "kernel_map": "fourier", "alpha": 0.3},
        {"kernel_map": "none", "levels": 1, "floor": 0.0},
    ],
    "uniform": [{"floor": 0.1}],
    "greedy": [
        {"ridge": 4.0, "imputation_rate": 0.3},
        {"floor": 0.1, "intercept": True, "forgetting": 0.8},
        {"sketch": "sjlt", **SMALL},
    ],
    "epsilon-greedy": [{"epsilon": 0.5, "floor": 0.1, "ridge": 0.1, "imputation_rate": "balanced"}],
    "linear-thompson": [
        {"ridge": 0.1, "scale": 1.0},
        {"floor": 0.1, "imputation_rate": "balanced", "forgetting": 0.9},
        {"sketch": "sjlt", **SMALL, "imputation_rate": 0.2},
        {"scale": 0.0},
        {"scale_contexts": True, "intercept": True},
    ],
    "sbucb": [
        {"ridge": 4.0, "forgetting": 0.7},
        {"ridge": 0.1, "intercept": True, "floor": 0.05},
        {"forgetting": 0.0},
        {"alpha": 0.0},
        {"alpha": 0.5, "levels": 8, "floor": None},
    ],
    "puir": [
        {"ridge": 4.0, "imputation_rate": 1.0, "discount": 1.0},
        {"ridge": 0.1, "imputation_rate": "balanced", "balance": 0.5},
        {"imputation_rate": "paper-schedule", "episodes": 3, "discount": 0.0},
        {"imputation_rate": 0.0},
        {"forgetting": 0.6, "discount": 0.9, "floor": 0.1},
        {"intercept": True, "alpha": 2.0},
        {"screen": False, "ridge": 0.1},
        {"scale": True, "intercept": True, "levels": 4, "imputation_rate": 0.5},
        {"bonus": "observed", "ridge": 0.1},
        {"bonus": "only", "imputation_rate": "balanced"},
    ],
    "spuir": [
        {**SMALL, "sketch_blocks": 3},
        {**SMALL, "sketch_blocks": 3, "moments": "sketched", "ridge": 4.0},
        {**SMALL, "moments": "exact", "imputation_rate": "balanced"},
        {**SMALL, "moments": "corrected", "ridge": 0.1, "forgetting": 0.7},
        {**SMALL, "sketch": "gaussian", "sketch_blocks": 3, "floor": 0.1},
        {**SMALL, "sketch": "gaussian", "moments": "sketched"},
        {"sketch": "identity", "imputation_rate": 1.0},
        {**SMALL, "intercept": True, "imputation_rate": 1.0, "discount": 1.0},
    ],
    "puir-rs": [{"episodes": 4, "ridge": 0.1}],
    "spuir-rs": [{**SMALL, "episodes": 4, "ridge": 4.0}],
    "puir-exp": [{"ridge": 4.0, "imputed_cap": 0.7, "imputation_rate": 0.5}],
    "puir-poly": [{"ridge": 0.5, "intercept": True, "discount": 0.9}],
    "puir-kernel": [{**KERNEL, "raw": True, "intercept": True, "ridge": 4.0}, {**KERNEL, "bandwidth": 0.8}],
    "spuir-exp": [{**SMALL, "imputed_cap": 2.0, "moments": "sketched"}, {**SMALL, "sketch_blocks": 3}],
    "spuir-poly": [{**SMALL, "moments": "exact", "ridge": 4.0}],
    "spuir-kernel": [{**KERNEL, **SMALL, "ridge": 0.1}],
    "bexp3": [{"ridge": 4.0, "rate": 0.01, "mixing": 0.2, "floor": 0.05}, {"episodes": 5, "batch_size": 150}],
    "bexp3-ipw": [{"ridge": 0.1, "rate": 0.02, "weight_cap": 3.0}],
    "blts-b": [
        {"ridge": 4.0, "propensity_floor": 0.05, "imputation_rate": 0.2},
        {"floor": 0.1, "propensity_draws": 50},
        {"sketch": "sjlt", **SMALL},
    ],
    "dfm-s": [
        {"memory": "window", "window": 1500, "floor": 0.1, "ridge": 0.3},
        {"horizon": None, "iterations": 3, "ridge": 4.0},
    ],
}


def _label(parameters: dict[str, Any]) -> str:
    return ",".join(f"{name}={value}" for name, value in parameters.items())


def _cases() -> dict[str, Policy]:
    cases: dict[str, Policy] = {}
    for name in list_policies():
        cases[name] = make_policy(name)
        paper = make_policy(name, preset="paper")
        if paper != cases[name]:
            cases[f"{name} (paper)"] = paper
        for parameters in EXTRA.get(name, []):
            cases[f"{name} ({_label(parameters)})"] = make_policy(name, **parameters)
    return cases


CASES = _cases()
