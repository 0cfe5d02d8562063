"""A problem as KernelBench has them."""

import torch


class Model(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width, 256, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) * 0.5


def get_inputs() -> list:
    return [torch.randn(16, 128)]


def get_init_inputs() -> list:
    return [128]
