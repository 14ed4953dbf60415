"""
Makes `forests.zip`: small forests as three libraries save them, with the number of outputs in each name.

The libraries take 90 MB and are not among the tests' dependencies; Treelite is, and reads every file in the archive. To make the
archive anew, in two fresh environments (the second one for formats that newer releases cannot write any more):

    pip install xgboost-cpu==3.2.0 lightgbm==4.7.0 treelite==4.8.1 scikit-learn==1.9.1
    python tests/security/forests/make.py now
    pip install xgboost-cpu==2.1.4 lightgbm==4.7.0 treelite==3.9.1 treelite_runtime==3.9.1
    python tests/security/forests/make.py before

A name is `<library>-<what>-<outputs per row>.<format>`; every forest reads four features.
"""

import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

import lightgbm
import numpy
import treelite
import xgboost

ARCHIVE = Path(__file__).with_name("forests.zip")
FEATURES, ROWS = 4, 120
MOST_CLASSES = 20
X = numpy.random.default_rng(8).random((ROWS, FEATURES)).astype("f4")
Y = numpy.arange(ROWS)


def boosted(parameters, y, *, rounds=1, **more):
    """A booster of XGBoost with trees of three nodes."""
    return xgboost.train(
        {"max_depth": 1, "nthread": 1, "seed": 8} | parameters, xgboost.DMatrix(X, label=y, **more), num_boost_round=rounds
    )


def boosters():
    """XGBoost's, by name."""
    for classes in range(1, MOST_CLASSES + 1):
        yield f"softprob-{classes}", boosted({"objective": "multi:softprob", "num_class": classes}, Y % classes)
    yield "softmax-5", boosted({"objective": "multi:softmax", "num_class": 5}, Y % 5)
    yield "regression-1", boosted({"objective": "reg:squarederror"}, Y / 7)
    yield "binary-1", boosted({"objective": "binary:logistic"}, Y % 2)
    yield "rank-1", boosted({"objective": "rank:pairwise"}, Y % 3, group=[60, 60])
    yield "dart-3", boosted({"objective": "multi:softprob", "num_class": 3, "booster": "dart", "rate_drop": 0.5}, Y % 3, rounds=2)
    yield "forest-3", boosted({"objective": "multi:softprob", "num_class": 3, "num_parallel_tree": 4, "subsample": 0.5}, Y % 3)
    yield "names-3", boosted({"objective": "multi:softprob", "num_class": 3}, Y % 3, feature_names=['a"b', "num_class", "ü", "{}"])


def several_targets():
    """XGBoost's, which only JSON and UBJSON can hold."""
    targets = numpy.stack([Y % 2, Y % 3, Y % 5], axis=1) / 3
    yield "targets-3", boosted({"objective": "reg:squarederror"}, targets)
    yield "leaves-3", boosted({"objective": "reg:squarederror", "multi_strategy": "multi_output_tree", "tree_method": "hist"}, targets)


def texts():
    """LightGBM's, by name."""

    def trained(parameters, y, **more):
        fixed = {"verbose": -1, "num_leaves": 2, "min_data_in_leaf": 1, "seed": 8, "num_threads": 1}
        return lightgbm.train(fixed | parameters, lightgbm.Dataset(X, label=y, **more), num_boost_round=1).model_to_string()

    for classes in range(2, MOST_CLASSES + 1):
        yield f"multiclass-{classes}", trained({"objective": "multiclass", "num_class": classes}, Y % classes)
    yield "ova-3", trained({"objective": "multiclassova", "num_class": 3}, Y % 3)
    yield (
        "forest-3",
        trained({"objective": "multiclass", "num_class": 3, "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}, Y % 3),
    )
    yield "regression-1", trained({"objective": "regression"}, Y / 7)
    yield "binary-1", trained({"objective": "binary"}, Y % 2)
    yield "rank-1", trained({"objective": "lambdarank"}, Y % 3, group=[60, 60])


def estimators():
    """scikit-learn's, by name."""
    from sklearn import ensemble  # noqa: PLC0415

    for classes in range(2, MOST_CLASSES + 1):
        yield f"forest-{classes}", ensemble.RandomForestClassifier(2, max_depth=2, random_state=8).fit(X, Y % classes)
        outputs = 1 if classes == 2 else classes
        yield f"boosting-{outputs}", ensemble.GradientBoostingClassifier(n_estimators=1, max_depth=1, random_state=8).fit(X, Y % classes)
    yield "extra-3", ensemble.ExtraTreesClassifier(2, max_depth=2, random_state=8).fit(X, Y % 3)
    yield "histogram-3", ensemble.HistGradientBoostingClassifier(max_iter=1, max_depth=2, random_state=8).fit(X, Y % 3)
    yield "regression-1", ensemble.RandomForestRegressor(2, max_depth=2, random_state=8).fit(X, Y / 7)
    yield "isolation-1", ensemble.IsolationForest(n_estimators=2, max_samples=8, random_state=8).fit(X)
    yield "targets-3", ensemble.RandomForestRegressor(2, max_depth=2, random_state=8).fit(X, numpy.stack([Y, Y % 2, Y % 3], axis=1) / 3)
    yield "outputs-6", ensemble.RandomForestClassifier(2, max_depth=2, random_state=8).fit(X, numpy.stack([Y % 2, Y % 3], axis=1))


def saved(save, suffix):
    """What a library's own method writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"model.{suffix}"
        save(str(path))
        return path.read_bytes()


def now():
    """The formats of today's releases."""
    for name, booster in (*boosters(), *several_targets()):
        for suffix in ("json", "ubj"):
            yield f"xgboost-{name}.{suffix}", saved(booster.save_model, suffix)
    for name, text in texts():
        yield f"lightgbm-{name}.txt", text.encode()
    for name, estimator in estimators():
        yield f"sklearn-{name}.tl", saved(treelite.sklearn.import_model(estimator).serialize, "tl")


def before():
    """The formats that only older releases write."""
    for name, booster in boosters():
        yield f"xgboost-{name}.model", saved(booster.save_model, "deprecated")
    for name, text in texts():
        yield f"treelite3-{name}.tl", saved(treelite.Model.from_lightgbm(lightgbm.Booster(model_str=text)).serialize, "tl")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    found = dict({"now": now, "before": before}[sys.argv[1]]())
    kept = {}
    if ARCHIVE.exists():
        with zipfile.ZipFile(ARCHIVE) as archive:
            kept = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in sorted((kept | found).items()):
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED, 9)
    print(len(found), "made,", ARCHIVE.stat().st_size, "bytes")
