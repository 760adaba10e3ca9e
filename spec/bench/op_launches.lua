--- What one call of an op asks of a GPU in a training step in 16 bits, where cuBLASLt makes the products and cuDNN the
-- attention: launches of our kernels, calls of these libraries (each is one kernel or a few), copies.
-- spec/cuda/counts_spec.lua keeps it true; gpu_budget.lua adds it up for models of full size.
return {
  linear             = { libraries = 1 },
  matmul             = { libraries = 1 },
  linear_input_grad  = { libraries = 1 }, -- of gelu_tanh
  linear_weight_grad = { libraries = 1 },
  attention          = { libraries = 1 },
  attention_grad     = { libraries = 1 },
  layer_norm         = { launches = 1 },
  layer_norm_grad    = { launches = 2 }, -- the rows, and the sums over them in a second pass
  dropout            = { launches = 1 },
  binary             = { launches = 1 },
  axpy               = { launches = 1 },
  affine             = { launches = 1 },
  scale              = { launches = 1 },
  fill               = { launches = 1 },
  sum                = { launches = 1 },
  copy               = { copies = 1 }, -- without gaps, in one dtype
  embedding          = { launches = 1 },
  embedding_grad     = { launches = 9 }, -- two rounds of three to sort the indices, their keys, their ends, the sums
  cross_entropy      = { launches = 1 },
  cross_entropy_grad = { launches = 1 },
  cross_entropy_both = { launches = 1 },
  rescale_rows       = { launches = 1 },
  sum_squares        = { launches = 2 },
  step_control       = { launches = 1 },
  adam               = { launches = 1 },
}
