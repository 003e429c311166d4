# sed -i -f five_lines.sed train.py: nanoGPT with exact resume. README.md says what each line does.
/^import torch$/a\
import tokenmill
/^data_dir = /a\
batches = iter(loader := tokenmill.Loader(data_dir, seq_len=block_size, batch_size=batch_size * ddp_world_size, rank=seed_offset, world_size=ddp_world_size))
/^    y = torch.stack/a\
    if torch.is_grad_enabled(): x, y = (torch.from_numpy(rows).contiguous() for rows in next(batches).arrays().values())
/^ *['"]iter_num['"]: iter_num,$/a\
                    'loader': loader.state_at(loader.state_dict()['rows'] - batch_size * ddp_world_size), # one batch is fetched ahead
/^    iter_num = checkpoint\[['"]iter_num['"]\]$/a\
    loader.load_state_dict(checkpoint['loader'])
