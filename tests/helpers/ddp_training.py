"""One process of a distributed training: ``python ddp_training.py FILE STORE RANK WORLD``; prints JSON."""

from __future__ import annotations

import json
import sys
from datetime import timedelta


def main(path: str, store: str, rank: int, world: int) -> None:
    """Train a linear model on this process's shard; print its rows, batches and parameters."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import zerocopy as zc

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=timedelta(seconds=60)
    )
    ranks = {"rank": dist.get_rank(), "world_size": dist.get_world_size()}
    loader = zc.loader(path, "torch", batch_size=8, shuffle=True, **ranks, drop_last=True, dtype="float32")
    torch.manual_seed(rank)  # DistributedDataParallel sends the parameters of rank 0
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    rows = []
    for batch in loader:
        loss = ((model(batch["x"][:, None] / 100)[:, 0] - batch["y"] / 100) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows.append(batch["x"].tolist())
    parameters = [value for p in model.parameters() for value in p.detach().flatten().tolist()]
    dist.destroy_process_group()
    print(json.dumps({"rows": rows, "parameters": parameters, "length": len(loader)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
