--- Names of PyTorch and NumPy that Ganymede does not have, and what to write for them: t is the tensor, d a dimension.
--
-- Only names that differ; what Ganymede has under the same name is found by itself (ganymede.base.missing). One line a
-- name; spec/config/missing_spec.lua checks that none of them is there, and that what is written in their place is.
-- @module ganymede.base.other_names
local name_lists = require "ganymede.base.name_lists"

local all, merged = name_lists.all, name_lists.merged

local one_device = "a run has one device, `ganymede run FILE --device cpu|cuda`, where all of its tensors are"
local in_place = "there are no operators in place: write t = t:%s(x), or t:copy_(t:%s(x)) under gm.no_grad"

local tensor = {
  -- shapes
  view = "write t:reshape(...)", view_as = "write t:reshape(other:shape())",
  reshape_as = "write t:reshape(other:shape())",
  ravel = "write t:reshape(-1)", unflatten = "write t:reshape(...)",
  squeeze = "write t:select(d, 1), which takes dimension d away, or t:reshape(...)",
  unsqueeze = "write t:reshape(...) with a 1 in the new place", expand_as = "write t:expand(other:shape())",
  split = "write t:chunk(pieces, d), or t:narrow(d, start, length) for each piece",
  tile = "write t:expand(shape), or gm.ops.cat({ t, t }, d)",
  repeat_interleave = "write t:reshape(...), t:expand(...) and t:reshape(...) again",
  T = "write t:transpose(1, 2)", t = "write t:transpose(1, 2)", mT = "write t:transpose(-2, -1)",
  swapaxes = "write t:transpose(a, b)", swapdims = "write t:transpose(a, b)", movedim = "write t:permute(...)",
  ndim = "write t:dim()", ndimension = "write t:dim()", nelement = "write t:numel()", len = "write t:size(1)",
  concat = "write gm.ops.cat(list, d)",
  concatenate = "write gm.ops.cat(list, d)",
  -- values, copies, devices
  numpy = "write t:totable(), or t:data() for a pointer", tolist = "write t:totable()", data_ptr = "write t:data()",
  cpu = one_device, cuda = one_device, device = one_device, is_cuda = one_device,
  float = 'write t:to "f32"', double = 'write t:to "f64"', half = 'write t:to "f16"', bfloat16 = 'write t:to "bf16"',
  int = 'write t:to "i32"', long = 'write t:to "i64"', byte = 'write t:to "u8"', bool = "write t:ne(0)",
  type = "write t:to(dtype), or t:dtype() to read it", astype = "write t:to(dtype)",
  cast = "write t:to(dtype)",
  detach_ = "write t = t:detach()", requires_grad_ = "write t:requires_grad(true)",
  is_leaf = "write t:requires_grad() to see whether it has a gradient", copy = "write t:clone()",
  -- writes in place
  zero_ = "write t:fill_(0)", add_ = in_place:gsub("%%s", "add"), sub_ = in_place:gsub("%%s", "sub"),
  mul_ = in_place:gsub("%%s", "mul"), div_ = in_place:gsub("%%s", "div"),
  masked_fill = "write gm.ops.where(mask, value, t)", masked_fill_ = "write t = gm.ops.where(mask, value, t)",
  -- arithmetic
  clip = "write t:clamp(low, high)",
  clamp_min = "write t:maximum(low)", clamp_max = "write t:minimum(high)",
  mm = "write t:matmul(other)", bmm = "write t:matmul(other)", dot = "write (t * other):sum()",
  mv = "write t:matmul(v:reshape(-1, 1))", addmm = "write gm.ops.linear(x, w, b), where w is (outputs, inputs)",
  log1p = "write (t + 1):log()", expm1 = "write t:exp() - 1", log2 = "write t:log() / math.log(2)",
  log10 = "write t:log() / math.log(10)", softplus = "write gm.ops.softplus(t)",
  leaky_relu = "write t:maximum(t * 0.01)", true_divide = "write t:div(other)",
  absolute = "write t:abs()", negative = "write t:neg()", multiply = "write t:mul(other)",
  subtract = "write t:sub(other)", divide = "write t:div(other)",
  -- sums over dimensions
  norm = "write t:square():sum():sqrt()", amax = "write t:max(d)", amin = "write t:min(d)",
  argmin = "write t:neg():argmax(d)",
  any = 'write t:to("f32"):sum():item() > 0', all = 'write t:to("f32"):mean():item() == 1',
  prod = "write t:log():sum(d):exp(), where all of t is above 0",
  logsumexp = "write (t - m):exp():sum(d, true):log() + m, where m is t:max(d, true)",
  topk = "write gm.ops.top_k(t, k), of the last dimension",
  argsort = "write t:sort(d), whose second result they are",
  index_select = "write gm.ops.embedding(t, index), which takes rows, from 0",
  take = "write gm.ops.embedding(t, index), which takes rows, from 0",
  -- like another one
  new_zeros = "write gm.zeros(shape, { dtype = t:dtype() })", new_ones = "write gm.ones(shape, { dtype = t:dtype() })",
  register_hook = "write gm.custom { forward =, backward = }, whose backward sees the gradient",
  triu = "write gm.ops.where(mask, t, 0); attention has causal = true",
  tril = "write gm.ops.where(mask, t, 0); attention has causal = true",
}

local ops = merged {
  all("write gm.ops.attention(q, k, v, { causal = ... })", "scaled_dot_product_attention"),
  all("write gm.ops.convolution(x, w, b, { stride = ..., padding = ... })", "conv1d conv2d conv3d"),
  all("write gm.ops.transposed_convolution(x, w, b, { stride = ..., padding = ... })",
    "conv_transpose1d conv_transpose2d conv_transpose3d"),
  all("write gm.ops.patchify, which cuts images into patches", "unfold"),
  all("write gm.ops.max_pool(x, kernel), which takes images of one to three dimensions",
    "max_pool1d max_pool2d max_pool3d"),
  all("write gm.ops.avg_pool(x, kernel), which takes images of one to three dimensions",
    "avg_pool1d avg_pool2d avg_pool3d"),
  all("write gm.ops.adaptive_avg_pool(x, size)", "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d"),
  all("write gm.ops.adaptive_max_pool(x, size)", "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d"),
  all("write gm.ops.interpolate(x, { scale = 2 })", "upsample upsample_nearest"),
  all("write (a - b):square():mean()", "mse_loss"), all("write (a - b):abs():mean()", "l1_loss"),
  all("write gm.ops.cross_entropy(logits, target), which takes logits", "nll_loss"),
}

local gm = merged {
  all("write gm.normal(shape)", "randn"), all("write gm.uniform(shape)", "rand random"),
  all("write gm.zeros(t:shape(), { dtype = t:dtype() })", "zeros_like"),
  all("write gm.ones(t:shape(), { dtype = t:dtype() })", "ones_like"),
  all("write gm.empty(t:shape(), { dtype = t:dtype() })", "empty_like"),
  all("write gm.arange(n) * step + first, with { dtype = \"f32\" }", "linspace range"),
  all("write gm.tensor(list)", "from_numpy as_tensor array Tensor FloatTensor"),
  all("write gm.launch { seed = ... }, or seed of a recipe", "manual_seed"),
  all("write gm.checkpoint.save and gm.checkpoint.open", "save load"),
  all('write the name of a dtype as a string, such as "f32"',
    "float32 float64 float16 bfloat16 int32 int64 uint8"),
  -- Colossal-AI's
  all("a model stays as it is: write zero = 3 among the settings of gm.launch or gm.initialize",
    "ShardedModel ShardedModelV2 ZeroDDP GeminiDDP ZeroInitContext ColoInitContext zero_model_wrapper "
      .. "convert_to_zero_v2"),
  all("an optimizer stays as it is: write zero = 3 among the settings of gm.launch or gm.initialize",
    "ShardedOptimizer ShardedOptimizerV2 ZeroOptimizer GeminiAdamOptimizer ColossalaiOptimizer zero_optim_wrapper"),
  all("write offload = { memory = \"8G\", disk = \"/scratch\" } among the settings of gm.launch",
    "GeminiManager ChunkManager TensorPlacementPolicy AutoTensorPlacementPolicy"),
  all("each parameter is cut by itself: leave it out", "TensorShardStrategy BucketTensorShardStrategy"),
  all("write gm.gathered({ parameters }, function() ... end)", "no_shard_zero_context no_shard_zero_decrator"),
  all("gm.initialize sums gradients over parallel.data by itself", "ColoDDP"),
  all("write gm.recompute(fn, x), or the setting recompute = \"block\"", "CheckpointModule"),
  all("write gm.ops, and gm.nn for layers", "functional"), all("write gm.comm", "distributed"),
  all(one_device, "cuda device"),
  all("write gm.context.get_global_rank()", "rank get_rank"),
  all("write gm.context.get_world_size()", "world_size get_world_size"),
  all("write gm.comm.barrier()", "barrier"), all("write gm.comm.all_reduce(t)", "all_reduce"),
  all("write dtype = \"bf16\" or dtype = \"f16\" among the settings; the losses of f16 are scaled then",
    "autocast GradScaler amp"),
  all("write --threads N behind ganymede run", "set_num_threads"),
  all("write graph = true among the settings, which records steps and replays them", "compile jit"),
}

local nn = merged {
  all("write nn.BatchNorm2d, whose statistics are those of all ranks", "SyncBatchNorm"),
  all("write gm.nn.LSTM or gm.nn.GRU", "RNN"),
  all("write nn.Lambda(function(x) return gm.ops.pad(x, sizes) end)", "ZeroPad2d ConstantPad2d ReflectionPad2d"),
  all("write nn.TransformerBlock", "TransformerEncoderLayer TransformerDecoderLayer"),
  all("write recompute = { PATTERN } among the settings, or gm.recompute(fn, x) in forward", "CheckpointModule"),
  all("write self.name = a tensor for which requires_grad(true) was called", "Parameter"),
  all("write gm.ops, the functions that layers call", "functional"),
  all("CrossEntropyLoss takes logits", "NLLLoss"), all("write nn.BCEWithLogitsLoss, which takes logits", "BCELoss"),
  all("there is none; a loss of your own is a class with forward and count (docs/tutorial.md, section 5)",
    "KLDivLoss TripletMarginLoss CosineEmbeddingLoss InfoNCE"),
}

local optim = merged {
  all("there are SGD, Adam, AdamW, SparseAdam, RMSprop, Adagrad, Adafactor, CAME, Lion, LAMB, LARS, Muon "
    .. "and GaLore; optim.class makes your own",
    "Adadelta Adamax NAdam RAdam LBFGS Rprop ASGD Adan Prodigy Sophia Shampoo SOAP"),
  all("write optim.GaLore({ rank =, update_proj_gap =, scale = }, model), which chooses the matrices itself",
    "GaLoreAdamW GaLoreAdamW8bit DistGaloreAwamW GaLoreAdafactor"),
  all("write optim.Lamb: what the ranks share is settled by the mesh", "DistributedLamb"),
  all("write optim.CAME: what the ranks share is settled by the mesh", "DistributedCAME"),
  all("write optim.Adafactor: what the ranks share is settled by the mesh", "DistributedAdaFactor"),
  { RMSProp = "write optim.RMSprop" },
}

local lr_scheduler = merged {
  all("leave lr_scheduler out: the rate of the optimizer stays", "ConstantLR"),
  all("write LinearWarmupLR, or PolynomialLR with power = 1", "LinearLR get_linear_schedule_with_warmup"),
  all("write CosineAnnealingWarmupLR", "CosineWithWarmup CosineLR get_cosine_schedule_with_warmup"),
  all("a schedule sees the step alone, so that a resumed run has the same rates: EarlyStopHook ends a run that no "
    .. "longer improves", "ReduceLROnPlateau"),
}

-- Those of torch.utils.data.
local data = merged {
  all("write gm.data.loader { dataset = DATASET, batch_size = N, shuffle = true }", "DataLoader"),
  all("write gm.data.dataset { length = N, get = function(i) return x, y end }, where i counts from 1",
    "Dataset TensorDataset IterableDataset Subset"),
  all("write the dataset Mix, or gm.data.dataset { length = N, get = function(i) return x, y end }", "ConcatDataset"),
  all("leave it out: ranks divide each batch among themselves", "DistributedSampler"),
}

-- Those of torch.distributed and mpi4py.
local comm = merged {
  all("write gm.context.get_global_rank()", "rank get_rank Get_rank"),
  all("write gm.context.get_world_size()", "world_size get_world_size Get_size"),
  all("write gm.comm.send with { async = true }", "isend Isend"), all("write gm.comm.receive", "recv Recv"),
  all("write gm.comm.receive with { async = true }", "irecv Irecv"),
  all("write gm.comm.all_gather", "all_gather_into_tensor all_gather_object"),
  all("write gm.comm.reduce_scatter", "reduce_scatter_tensor"),
  all("write gm.comm.all_to_all_rows", "all_to_all_single"), all("write gm.comm.group_of", "new_group"),
}

-- Those of torchmetrics and scikit-learn.
local metrics = merged {
  all("write gm.metrics.F1", "F1Score f1_score FBetaScore"), all("write gm.metrics.AUC", "AUROC ROC roc_auc_score"),
  all("write gm.metrics.IoU", "JaccardIndex MeanIoU jaccard_score"),
  all("write gm.metrics.TopK { k = 5 }", "TopKAccuracy top_k_accuracy_score"),
  all("write gm.metrics.ConfusionMatrix", "confusion_matrix"), all("write gm.metrics.Accuracy", "accuracy_score"),
  all("the loss of an evaluation is a mean over all samples: it needs no metric", "MeanSquaredError MeanAbsoluteError"),
}

return { tensor = tensor, ops = ops, gm = gm, nn = nn, optim = optim, lr_scheduler = lr_scheduler, metrics = metrics,
  comm = comm, data = data }
