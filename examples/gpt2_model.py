"""GPT-2 in plain PyTorch, with attention that can stay within documents."""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional

if torch.cuda.is_available():  # seconds to import
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled_flex_attention = torch.compile(flex_attention)


class Block(nn.Module):
    def __init__(self, width: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, nn.Dropout(dropout)
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mixed = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        heads = self.qkv(self.before_attention(x)).unflatten(2, (3, self.num_heads, -1))
        seen = attention(*heads.permute(2, 0, 3, 1, 4), mask)
        x = x + self.dropout(self.mixed(seen.transpose(1, 2).flatten(2)))
        hidden = functional.gelu(self.up(self.before_mlp(x)), approximate="tanh")
        return x + self.dropout(self.down(hidden))


class Gpt2(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.tokens = nn.Embedding(options.vocab, options.width)
        self.positions = nn.Embedding(options.seq_len, options.width)
        shape = (options.width, options.heads, options.dropout)
        self.blocks = nn.ModuleList(Block(*shape) for _ in range(options.layers))
        self.last = nn.LayerNorm(options.width)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:  # less where a branch ends, as in GPT-2
                ends = name.endswith(("mixed.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * options.layers if ends else 1))

    def forward(self, tokens, targets, mask=None, position_ids=None):
        """The mean loss of these rows. `mask`: see mask_of."""
        if position_ids is None:
            position_ids = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(position_ids)
        for block in self.blocks:
            x = block(x, mask)
        logits = functional.linear(self.last(x), self.tokens.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    def flops_per_token(self) -> int:
        """Forward and backward, attention as if it were not causal: as others count for MFU."""
        seq_len, width = self.positions.weight.shape
        num_parameters = sum(each.numel() for each in self.parameters())
        return 6 * num_parameters + 12 * len(self.blocks) * width * seq_len


def attention(q, k, v, mask):
    if mask is None or torch.is_tensor(mask):
        return functional.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None)
    return compiled_flex_attention(q, k, v, block_mask=mask)


def mask_of(ids):
    """Of a loader's document_ids: attention looks back, and only within a document."""
    if not ids.is_cuda:
        return (ids[:, :, None] == ids[:, None, :]).tril()[:, None]
    (rows, length), seen = ids.shape, lambda b, h, q, k: (q >= k) & (ids[b, q] == ids[b, k])
    return create_block_mask(seen, rows, None, length, length, device=ids.device)
