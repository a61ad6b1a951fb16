"""Calls with one mistake each, which tests/engine/test_typing.py expects mypy and pyright to report."""

import numpy as np
import torch

import zerocopy as zc

x = np.arange(3.0)
name = str(x.dtype)


@zc.accepts("torch")
def halves(x: torch.Tensor, parts: int = 2) -> list[torch.Tensor]:
    return list(x.chunk(parts))


# one a line
zc.convert(x, "troch")
zc.convert([x], "troch")
zc.convert(x, name)
zc.convert(x, 3)
zc.convert(x, [x])
zc.convert(x, torch.ones(2), coppy=True)
zc.convert(x, "torch", coppy=True)
zc.convert(x, "pandas", copy=True, indx=False)
zc.convert(x, zc.FrameworkName(name), coppy=True)
zc.convert(x, "torch", leaves="drop")
zc.convert(x, "torch", copy="yes")
zc.explain(x, "troch")
zc.explain(x, "torch", copy="yes")
zc.explain(x, "torch", coppy=True)
zc.converter(x, "troch")
zc.loader(x, "troch", batch_size=2)
zc.bridge(np.sum, "troch")
zc.accepts("troch")
zc.accepts("torch", returns="troch")
halves(x=torch.ones(2), parts="3")
zc.convert(x, "torch", layout="matix")
zc.loader(x, "torch", layout="matix")
zc.convert(x, "torch", lists="padd")
zc.convert(x, "torch", nulls="maks")
zc.convert(x, "torch", encode="byte")
zc.convert(x, "torch", validate="ful")
zc.explain(x, "torch", nulls="maks")
zc.converter(x, "torch", nulls={"a": "maks"})
zc.loader(x, "torch", nulls="maks")
zc.loader(x, "torch", lists="padd")
zc.loader(x, "torch", encode="byte")
zc.loader(x, "torch", shuffle="ful")
zc.loader(x, "torch", on_error="skp")
zc.loader(x, "torch", engine="cuda")
zc.converter(x, "torch", copy="yes")
zc.converter(x, "torch", coppy=True)
print(zc.converter(x, "torch")(x).nopixels)
zc.loader(x, "torch", batch_size="2")
zc.loader(x, "torch", shards=(0, 1))
print(next(iter(zc.loader(x, "torch")))["a"].nopixels)
zc.open_weights("model.npz", "troch")
zc.open_weights(3)
zc.open_weights("model.npz", copy="yes")
zc.open_weights("model.npz", coppy=True)
zc.loader(x, "torch")[0]
print(zc.open_weights("model.npz", "torch")["w"].nopixels)
zc.open_weights("model.npz")[3]
