-- software.lua - records of steps rewritten as published software works where our runtime works otherwise.
--
--     software.strip(from, to)            without allocations, which a replay does not read
--     software.rewrite(from, to, how)     as `how` says
--
-- how is one of the tables below. Each option is a property that the software's own code or paper documents; none was
-- chosen by looking at a row.
--   order          axes, slowest first. Ours: data, pipeline, ... (Megatron-LM core/parallel_state.py, nanotron
--                  parallel/context.py and DeepSpeed runtime/pipe/topology.py: stages outside, data between)
--   joined_gate    the gate and the other half of a gated MLP are one product: its input is gathered once. Ours gathers
--                  twice (nanotron models/llama.py gate_up_proj, Megatron-LM linear_fc1)
--   whole_scores   attention writes its scores: two batched products of all pairs, softmax and dropout as kernels
--                  between them (Megatron-LM before 2023: no FlashAttention). Ours never writes them
--   delayed_scales scales of tensors of 8 bits come from earlier steps, so a tensor is read once, when it is encoded,
--                  and nothing is sent for a scale (nvidia.github.io/TransformerEngine, FP8 Delayed Scaling). Ours
--                  does so with float8.scaling = "delayed", which these rows were not predicted with
--   eager          a factor for the bytes of norms, which stands for all that PyTorch without a compiler runs between
--                  the products of a layer and our kernels do not: sums, activations, copies, casts and gaps. So many
--                  kernels are launched in place of one
--   host           the seconds in which PyTorch's host launches a kernel: 5 to 25 us from a line of Python to the
--                  driver's queue (jiahuanglin.xyz/all_lessons/gpu_kernel_serving, lesson 18), of which we take 10.
--                  Without it: the machine's file
--   whole_losses   logits are copied to f32 as a whole, and the loss is computed from them kernel by kernel (nanotron
--                  parallel/tensor_parallel/functional.py, sharded_cross_entropy). Ours reads 16 bits once, or works in
--                  pieces
--   hidden_products gathers and scatters of tensor ranks move while the products beside them run (Transformer Engine,
--                  userbuffers: NeMo's ub_tp_comm_overlap, tp_comm_overlap). Ours runs one after the other
--   whole_gathers  but gathers of forward do not (NVTE_UB_SPLIT_AG=0)
--   hidden_gathers updated parameters are gathered while the next forward runs (Megatron-LM overlap_param_gather, apex
--                  overlap_param_sync, FSDP's SHARD_GRAD_OP). Ours gathers them behind the update
--   gathers_8_bits parameters that are multiplied in 8 bits are gathered in 8 bits (NeMo's fp8_params). Ours in 16
--   waits          what goes between tensor ranks is waited for at once, and runs beside nothing (Megatron-LM's
--                  copy_to_tensor_model_parallel_region, mpu/mappings.py, before its LinearWithGradAccumulationAnd-
--                  AsyncCommunication). Ours sums beside the product that makes a weight's gradient
--   blocking       each launch waits until its kernel has ended (CUDA_LAUNCH_BLOCKING=1): the host's time for a launch
--                  comes on top of each op, and nothing overlaps, messages of a pipeline included
--   sums           a kernel of its own adds each gradient of a weight to what earlier micro-batches gave, and moves so
--                  many bytes an element: 6 in 16 bits (PyTorch's AccumulateGrad), 10 where 16 bits are added to f32
--                  (DeepSpeed bf16_optimizer.py, update_hp_grads; nanotron optim/gradient_accumulator.py; Megatron-LM
--                  model/distributed.py, main_grad). Ours adds in the product, as Megatron-Core does
--   whole_sums     gradients are summed whole on all data ranks, also with ZeRO 1 (DeepSpeed pipe/engine.py,
--                  _bf16_reduce_grads). Ours gives each rank its part
--   square_apart   the activation is relu and a power, in kernels of their own (NeMo 2's squared_relu, which is not
--                  compiled). Ours is one kernel
--   attention      the part of the peak that attention's kernel reaches, by device: FlashAttention 1: 0.25 to 0.4 on
--                  A100, version 2: 0.5 to 0.73 (arXiv:2307.08691, abstract), and 0.35 on H100 (arXiv:2407.08608,
--                  abstract). Without it: the rates of the machine's file
--
-- The factor of eager was found together with the rate of large products of the machines' files: of two rows of
-- llm_foundry on each of A100 and H100, one with wide layers and one with narrow ones (docs/planning_published.md).
local core = require "ganymede.core"
local record = require "record"
local files = require "ganymede.base.machine"
local overlap = require "overlap"
local waves = require "waves"

local software = {}

local stages_outside = { "pipeline", "data", "tensor" }

software.own = {}
local PYTORCH = 10e-6
local FLASH_2 = { a100 = 0.6, h100 = 0.35 }

--- Returns the options of how, and those of more (nil: none), which count before them.
function software.with(how, more)
  local out = {}
  for _, from in ipairs { how, more } do
    for key, value in pairs(from) do out[key] = value end
  end
  return out
end

software.nanotron = { order = stages_outside, joined_gate = true, eager = 9, host = PYTORCH, attention = FLASH_2,
  whole_losses = true, sums = 10 }
software.megatron_2021 = { order = stages_outside, whole_scores = true, eager = 2, host = PYTORCH, waits = true,
  sums = 6 }
software.megatron_deepspeed_blocking = software.with(software.megatron_2021, { blocking = true })
software.nemo = { order = stages_outside, joined_gate = true, host = PYTORCH, hidden_products = true,
  hidden_gathers = true }
software.nemo_float8 = software.with(software.nemo, { delayed_scales = true, gathers_8_bits = true })
software.colossal_ai = { eager = 9, host = PYTORCH, attention = FLASH_2 }
software.fsdp_2023 = { eager = 9, host = PYTORCH, attention = { a100 = 0.325, h100 = 0.25 }, hidden_gathers = true }

local is_event = { o = true, r = true, b = true, w = true } -- lines (host/plan/step_file.h), memory apart

--- Writes a record without its allocations.
function software.strip(from, to)
  local out, n = {}, 0
  for line in files.read(from):gmatch "[^\n]+" do
    local kind = line:match "^(%a+) "
    if is_event[kind] then n = n + 1 end
    if kind == "end" then line = "end " .. n end
    if kind ~= "a" and kind ~= "f" then out[#out + 1] = line end
  end
  core.write_whole(to, table.concat(out, "\n") .. "\n")
end

--- Returns the machine (of machines.read) as the software uses it.
function software.machine(about, how)
  local part = how.attention and how.attention[about.name:match "a100" or "h100"]
  local out, products = {}, {}
  for key, value in pairs(about) do out[key] = value end
  if how.blocking then
    out.launch, out.begin, out.host_launch = about.launch + how.host, about.begin + how.host, nil
  elseif how.host then out.host_launch = { op = how.host, between = how.host, recorded = 0 } end
  if not part then return out end
  for _, rate in ipairs(about.products) do
    if not rate.op:find "^attention" then products[#products + 1] = rate end
  end
  for _, op in ipairs { "attention", "attention_grad" } do
    products[#products + 1] = { op = op, dtype = "*", points = { { 1, part * about.peaks.bf16 } } }
  end
  out.products = products
  return out
end

local processors = { a100 = 108, h100 = 132, h200 = 132 } -- multiprocessors, by NVIDIA's data sheets

--- Returns what rewriting needs to know of the machine (of machines.read) and of the stage (0, ...) of a record.
function software.place(about, stage, chunks)
  return { processors = processors[about.name:match "[ah][12]00"], stage = stage, chunks = chunks }
end

--- Returns the bytes that the last stage holds beside ours at its peak: with whole losses, two copies of the logits of
-- a micro-batch in f32, where ours are 16 bits wide.
function software.bytes_of_losses(setting, how)
  local logits = setting.micro * setting.sequence * setting.model.vocabulary / setting.tensor
  return how.whole_losses and (4 + 4 - 2) * logits or 0
end

--- Returns the mesh in the order of the software.
function software.order(mesh, how)
  if not how.order then return mesh end
  local out, place = {}, {}
  for i, name in ipairs(how.order) do place[name] = i end
  for i, axis in ipairs(mesh) do out[i] = axis end
  table.sort(out, function(a, b) return place[a.name] < place[b.name] end)
  return out
end

-- ---------------------------------------------------------------- lines

-- b ID NAME ABOUT DTYPE PATH PHASE GROUP PEER BYTES SENT SECONDS. Whether it is the second gather or scatter of x.
local function is_second(words, texts)
  local name, path = texts[tonumber(words[3])], texts[tonumber(words[6])] or ""
  return (name == "all_gather" or name == "reduce_scatter") and path:find "%.mlp%.up$"
    and texts[tonumber(words[8])] == "tensor"
end

-- Whether an op or an operation finds a scale of 8 bits: float8_scale, and the largest magnitude over ranks, a number
-- of f32 in a layer.
local function is_of_scale(words, texts)
  local name = texts[tonumber(words[words[1] == "b" and 3 or 2])]
  if words[1] ~= "b" then return name == "float8_scale" end
  return name == "all_reduce" and texts[tonumber(words[4])] == "f32 ()" and (texts[tonumber(words[6])] or "") ~= ""
end

-- Bytes for each score of a head: forward, scores written, read and written by the softmax, read and written by
-- dropout, with its mask of a byte, and read by the second product; backward, the same back, and gradients.
local of_scores = { attention = 2 + 4 + 5 + 2, attention_grad = 2 + 5 + 6 + 4 }

-- o NAME ABOUT DTYPE PATH SIZE FLOPS PRODUCTS BYTES SECONDS -> lines. About: "bf16 (b, s, h, d) (b, t, h, d) causal".
local function with_scores(words, texts, number)
  local kind = words[1]
  local name, about = texts[tonumber(words[2])], texts[tonumber(words[3])]
  local b, s, h, d, t = about:match "%((%d+), (%d+), (%d+), (%d+)%) %(%d+, (%d+)"
  local pairs_of = b * s * h * t
  local products = (name == "attention" and 4 or 8) * pairs_of * d
  local of = ("%s %s %s"):format(words[3], words[4], words[5])
  return ("%s %s %s %d %.17g %.17g %s 0"):format(kind, number "matmul", of, d, products, products, words[9]),
    ("%s %s %s 0 %.17g 0 %.17g 0"):format(kind, number "softmax", of, 5 * pairs_of, of_scores[name] * pairs_of)
end

-- Texts of a record by their numbers, and a function that gives the number of one, adding it where it is new.
local function read_texts(lines)
  local texts, of, n, added = {}, {}, 0, {}
  for _, line in ipairs(lines) do
    if line:sub(1, 2) == "t " then
      texts[n], of[line:sub(3)], n = line:sub(3), n, n + 1
    end
  end
  return texts, function(word)
    if not of[word] then of[word], texts[n], n, added[#added + 1] = n, word, n + 1, "t " .. word end
    return of[word]
  end, added
end

local norms = { layer_norm = true, layer_norm_grad = true, rms_norm = true, rms_norm_grad = true }

-- Bytes of the matrices of a record that have a row for each class, which no software multiplies in 8 bits, as a set.
local function bytes_of_classes(lines, texts)
  local set = {}
  for _, line in ipairs(lines) do
    local words = line:find "^o " and record.words(line)
    local name, path = words and texts[tonumber(words[2])], words and texts[tonumber(words[5])]
    local about = name == "embedding" and texts[tonumber(words[3])]:match "%((%d+, %d+)%)"
      or name == "linear" and path == "head" and texts[tonumber(words[3])]:match "%((%d+, %d+)%)$"
    if about then
      local rows, columns = about:match "(%d+), (%d+)"
      set[2 * rows * columns] = true
    end
  end
  return set
end

-- Whether an operation is a sum of gradients of which each data rank gets its part.
local function is_sum(words, texts)
  return record.is_between(words, texts, "reduce_scatter", "data") and texts[tonumber(words[7])] == "backward"
end

-- An operation between ranks -> its line, or nil if the software has none.
local function with_operation(line, how, texts, number, of_classes)
  local words = record.words(line)
  if how.whole_sums and is_sum(words, texts) then
    words[3], words[11] = number "all_reduce", ("%.17g"):format(2 * words[11])
    return table.concat(words, " ")
  end
  if how.joined_gate and is_second(words, texts) or how.delayed_scales and is_of_scale(words, texts) then return end
  if how.gathers_8_bits and record.is_of_parameter(words, texts) and not of_classes[tonumber(words[10])] then
    words[10], words[11] = ("%.17g"):format(words[10] / 2), ("%.17g"):format(words[11] / 2)
    return table.concat(words, " ")
  end
  return line
end

-- relu(x)^2 by PyTorch without a compiler, as factors of our bytes: forward two kernels of 2 tensors each, where ours
-- is one; backward the power copies x, doubles it and multiplies, then that of relu: 2 + 2 + 3 + 3 tensors, where ours
-- are 3.
local of_square = { gelu_tanh = { bytes = 2, launches = 2 }, unary_grad = { bytes = 10 / 3, launches = 4 } }

-- The loss of whole logits in f32, as PyTorch computes it: a copy of 16 bits in 32, the largest, a difference, its
-- exponential, their sum and a quotient; backward a product and a copy back. Bytes for each logit, and kernels.
local whole_loss = { bytes = (2 + 4) + 4 + 8 + 8 + 4 + 8 + 8 + (4 + 2), launches = 8 }

-- Adds it in place of ours, whose other ops are left out. Its backward follows its forward at once.
local function add_loss(out, words, texts)
  if texts[tonumber(words[2])] ~= "cross_entropy" then return end
  local op, logits = table.concat(words, " ", 1, 5), 1
  for size in texts[tonumber(words[3])]:match "^%w+ (%b())":gmatch "%d+" do logits = logits * size end
  for _ = 2, whole_loss.launches do out[#out + 1] = op .. " 0 0 0 0 0" end
  out[#out + 1] = ("%s 0 0 0 %.17g 0"):format(op, whole_loss.bytes * logits)
end

-- Adds the lines of an op as the software runs it.
local function add_op(out, line, how, texts, number)
  local words, more = record.words(line), nil
  local name = texts[tonumber(words[2])]
  if how.delayed_scales and is_of_scale(words, texts) then return end
  if how.whole_losses and texts[tonumber(words[5])] == "cross_entropy" then return add_loss(out, words, texts) end
  if how.processors and words[8] ~= "0" then
    local longer = waves.longer(name, texts[tonumber(words[3])] or "", how.processors)
    words[8] = ("%.17g"):format(longer * words[8])
    line = table.concat(words, " ")
  end
  if how.sums and name == "linear_weight_grad" then
    local rows, columns = waves.result(name, texts[tonumber(words[3])])
    more = ("%s %s 0 0 0 %.17g 0"):format(words[1], number "sum_of_gradients" .. " " .. table.concat(words, " ", 3, 5),
      how.sums * rows * columns)
  end
  if how.eager and norms[name] then
    words[9] = ("%.17g"):format(how.eager * words[9])
    line = table.concat(words, " ")
    for _ = 2, how.eager do out[#out + 1] = table.concat(words, " ", 1, 5) .. " 0 0 0 0 0" end -- launches
  elseif how.whole_scores and of_scores[name] then
    line, more = with_scores(words, texts, number)
  elseif how.square_apart and of_square[name] and texts[tonumber(words[3])]:find "gelu" then
    local part = of_square[name]
    words[9] = ("%.17g"):format(part.bytes * words[9])
    line = table.concat(words, " ")
    for _ = 2, part.launches do out[#out + 1] = table.concat(words, " ", 1, 5) .. " 0 0 0 0 0" end
  end
  out[#out + 1] = line
  if more then out[#out + 1] = more end
end

-- Events of lines -> lines, with the ids that they had.
local function rewritten_events(lines, how, texts, number)
  local out, of_classes = {}, how.gathers_8_bits and bytes_of_classes(lines, texts)
  for _, line in ipairs(lines) do
    local kind = line:match "^(%a+) "
    if kind == "b" then out[#out + 1] = with_operation(line, how, texts, number, of_classes)
    elseif kind == "o" or kind == "r" then add_op(out, line, how, texts, number)
    elseif is_event[kind] then out[#out + 1] = line end
  end
  if how.blocking then out = overlap.nothing(out, texts, how.stage)
  elseif how.waits then out = overlap.none(out, texts) end
  if how.hidden_products then out = overlap.products(out, texts, how) end
  if how.hidden_gathers then out = overlap.parameters(out, texts, how.chunks or 1) end
  return out
end

-- Ids of operations follow the order of their begins; what waits for one that was left out goes, too.
local function renumbered(events)
  local out, ids, n = {}, {}, 0
  for _, line in ipairs(events) do
    local kind, id, rest = line:match "^([bw]) (%d+) (.*)"
    if kind == "b" then ids[id], n = n + 1, n + 1 end
    if not kind then out[#out + 1] = line
    elseif ids[id] then out[#out + 1] = ("%s %d %s"):format(kind, ids[id], rest) end
  end
  return out
end

local function rewritten(lines, how)
  local texts, number, added = read_texts(lines)
  local events, out = renumbered(rewritten_events(lines, how, texts, number)), {}
  for _, line in ipairs(lines) do
    local kind = line:match "^(%a+)[ -]"
    if not is_event[kind] and kind ~= "end" then out[#out + 1] = line end
  end
  for _, line in ipairs(added) do out[#out + 1] = line end
  for _, line in ipairs(events) do out[#out + 1] = line end
  out[#out + 1] = "end " .. #events
  return out
end

-- The rank keeps its coordinates, so it has another number.
local function rank_of(axes, coordinates)
  local rank = 0
  for _, axis in ipairs(axes) do rank = rank * axis.size + coordinates[axis.name] end
  return rank
end

local function reordered(lines, order)
  local place, axes, coordinates, out = {}, {}, {}, {}
  local rank = tonumber(lines[2]:match "^rank (%d+)$")
  for i, name in ipairs(order) do place[name] = i end
  for _, line in ipairs(lines) do
    local name, size = line:match "^axis (%S+) (%d+)$"
    if name then axes[#axes + 1] = { name = name, size = tonumber(size) } end
  end
  for i = #axes, 1, -1 do
    coordinates[axes[i].name], rank = rank % axes[i].size, math.floor(rank / axes[i].size)
  end
  table.sort(axes, function(a, b) return place[a.name] < place[b.name] end)
  out[1], out[2] = lines[1], "rank " .. rank_of(axes, coordinates)
  for _, axis in ipairs(axes) do out[#out + 1] = ("axis %s %d"):format(axis.name, axis.size) end
  for i = 3, #lines do
    if not lines[i]:find "^axis " then out[#out + 1] = lines[i] end
  end
  return out
end

--- Writes a record as the software would have made it.
function software.rewrite(from, to, how)
  local text = files.read(from)
  if next(how) then
    local lines = {}
    for line in text:gmatch "[^\n]+" do lines[#lines + 1] = line end
    lines = rewritten(lines, how)
    if how.order then lines = reordered(lines, how.order) end
    text = table.concat(lines, "\n") .. "\n"
  end
  core.write_whole(to, text)
end

return software
