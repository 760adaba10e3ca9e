--- Resolves the table `parallel` of a recipe for a number of ranks: it settles every size and refuses impossible ones.
--
--     parallel.resolve({ tensor = { size = 4, mode = "2d" } }, 8)
--     --> { world = 8, data = 2, pipeline = 1, split = "parameters", expert = 1,
--     --    sequence = { size = 1, mode = "ring" }, tensor = { size = 4, mode = "2d" },
--     --    axes = { { "data", 2 }, { "row", 2 }, { "col", 2 } } }
--
-- It is a pure function: it starts nothing and does not depend on the build. data, pipeline, sequence, expert and
-- tensor are each a number or a table with `size`. If data is not given, it is the number of ranks that the others
-- leave of the world; if it is given, it is checked. `axes` is the mesh, slowest axis first, without axes of size 1.
-- `order` says which lies outside of which, where ranks that are neighbours have faster links (ganymede.plan.search).
-- The plan also has `chunks` of a pipeline (nil if the table leaves them to the schedule) and `split`.
-- The trap: expert is the inner part of data, so with it the axis data is smaller than the size data:
-- { { "data", data / expert }, { "expert", expert } }. So is data.shard, over which ZeRO divides: { { "data", data /
-- shard }, { "shard", shard / expert }, { "expert", expert } }. 1D: arXiv:1909.08053; 2D: arXiv:2104.05343; 2.5D:
-- arXiv:2105.14500; 3D: arXiv:2105.14450; sequence rings: arXiv:2105.13120.
local failure = require "ganymede.base.failure"
local options = require "ganymede.base.options"
local registry = require "ganymede.base.registry"
require "ganymede.job.tensor_modes"

local parallel = {}

parallel.tensor_modes = registry.tensor_modes.order -- grows as users register theirs
parallel.sequence_modes = { "ring", "ulysses" }

--- The ways to cut a model into stages: equal numbers of sections in each part, as far as possible; equal parameters;
-- or equal floating point operations, counted on the meta device. A list of the numbers of sections in each part is
-- also possible.
parallel.splits = { "uniform", "parameters", "flops" }

--- The ways in which tensors travel between ranks; auto: those of GPUs through NCCL if every rank has a GPU of its own,
-- otherwise through host memory; those in host memory through memory that the ranks of a machine share, and over MPI or
-- TCP to other machines. network: all over MPI or TCP.
parallel.transports = { "auto", "nccl", "host", "network" }

--- The parts of a mesh, outermost first, if `parallel.order` does not say otherwise. The axes of a tensor mode stay
-- together, and so do those of data and of its shards.
parallel.order = { "data", "expert", "pipeline", "sequence", "tensor" }

--- Returns the names of the axes of a group: "depth.row" -> { "depth", "row" }.
function parallel.axis_names(text)
  local list = {}
  for name in text:gmatch "[^.]+" do list[#list + 1] = name end
  return list
end

--- Returns the number of stages of a mesh (a list of { name, size }, outermost first), and the distance of the ranks of
-- neighbouring stages.
function parallel.stages(mesh)
  local inner = 1
  for i = #mesh, 1, -1 do
    if mesh[i].name == "pipeline" then return mesh[i].size, inner end
    inner = inner * mesh[i].size
  end
  return 1, inner
end

local MOST = 2 ^ 20 -- ranks

local function declare(doc, fields)
  fields.size = fields.size or { type = "integer", min = 1, max = MOST, optional = true, doc = "the number of ranks" }
  return { type = { "integer", "table", "string" }, min = 1, max = MOST, optional = true, short = "size",
    fields = fields, doc = doc }
end

--- The keys of the table; ganymede.config.schema takes them from here.
parallel.fields = {
  data = declare("ranks that hold the same parameters and get different samples; \"auto\": all ranks that are left", {
    size = { type = { "integer", "string" }, min = 1, max = MOST, optional = true,
      doc = "the number of ranks, or \"auto\"" },
    bucket_mb = { type = "number", above = 0, optional = true,
      doc = "the size in megabytes of the buckets of gradients that are summed over the ranks at once; default 4" },
    overlap = { type = "boolean", optional = true,
      doc = "whether gradients are summed while backward still runs; default true" },
    shard = { type = "integer", min = 1, max = MOST, optional = true,
      doc = "the number of ranks that ZeRO divides parameters over, an inner part of the data ranks; default: all "
        .. "(zero.size says the same)" } }),
  pipeline = declare("stages: ranks that hold consecutive parts of the model", {
    chunks = { type = "integer", min = 1, max = MOST, optional = true,
      doc = "the number of parts that each stage holds; default: the schedule's own number" },
    split = { type = { "string", "table" }, optional = true,
      doc = "how the model is cut into parts: \"uniform\", \"parameters\" (default), \"flops\", or a list with the "
        .. "number of sections in each part" } }),
  sequence = declare("ranks that share each sequence", {
    mode = { type = "string", one_of = parallel.sequence_modes, optional = true,
      doc = "how the ranks share attention" } }),
  expert = declare("ranks that share the experts, an inner part of the data ranks", {}),
  tensor = declare("ranks that share each layer", {
    mode = { type = "string", one_of = parallel.tensor_modes, optional = true,
      doc = "how weights are cut over the ranks" },
    depth = { type = "integer", min = 1, optional = true, doc = "the depth of mode 2.5d, where size = depth * q * q" },
    sequence = { type = "boolean", optional = true,
      doc = "whether mode 1d also cuts activations between layers along the sequence, as Megatron does" },
    keep_gathered = { type = "boolean", optional = true,
      doc = "whether what products gather is kept for backward and not gathered again; default false" } }),
  order = { type = "list", optional = true,
    doc = "the axes from the outermost (farthest ranks) to the innermost (neighbours), such as { \"pipeline\", "
      .. "\"data\", \"tensor\" }: each of data, expert, pipeline, sequence and tensor that has several ranks; data "
      .. "before expert; default: data, expert, pipeline, sequence, tensor" },
  shrink = { type = "list", optional = true,
    doc = "which sizes may become smaller when a job goes on with fewer ranks (--min-ranks, `ganymede resize`): a list "
      .. "of data, pipeline, sequence and tensor, of which the first gives way first, and grows with more ranks; "
      .. "default: { \"data\" }" },
  transport = { type = "string", one_of = parallel.transports, optional = true,
    doc = "how tensors travel: between GPUs \"nccl\", \"host\" (through host memory), or \"auto\" (default: NCCL if "
      .. "each rank has a GPU of its own); in host memory, ranks of one machine share memory, but with \"network\", by "
      .. "which all travel over MPI or TCP" },
}

local function is_size(v) return options.problem(parallel.fields.expert.fields.size, v) == nil end

local function known(list, value)
  for _, name in ipairs(list) do
    if name == value then return true end
  end
  return false
end

local function sorted_keys(t)
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = tostring(key) end
  table.sort(keys)
  return keys
end

-- Raises an error that resolve catches: a key such as "parallel.tensor", and what is wrong with it.
local function wrong(key, fmt, ...) error({ parallel = true, key = key, text = fmt:format(...) }, 0) end

-- Returns a number or a table as a checked table with size (nil if it was not given or is "auto").
local function part(given, name)
  local v, fields, path = given[name], parallel.fields[name].fields, "parallel." .. name
  if v == nil or v == "auto" and name == "data" then return {} end
  if v == "auto" then
    wrong(path, "cannot be 'auto' alone: parallel = \"auto\" plans all of it, and `ganymede plan --keep` keeps parts")
  end
  if type(v) == "number" then v = { size = v } end
  if type(v) ~= "table" then
    wrong(path, "must be a number of ranks or { size = ... }; got %s", tostring(v))
  end
  local copy = {}
  for _, key in ipairs(sorted_keys(v)) do
    local value = v[key]
    if not fields[key] then
      wrong(path .. "." .. key, "is no key of it%s", options.hint_or_list(key, sorted_keys(fields), "; there are "))
    end
    if key == "size" and value == "auto" and name == "data" then value = nil end
    local entry = key == "size" and parallel.fields.expert.fields.size or fields[key]
    local why = value ~= nil and options.problem(entry, value)
    if why then wrong(key == "size" and path or path .. "." .. key, "%s%s", key == "size" and "size " or "", why) end
    copy[key] = value
  end
  return copy
end

-- Returns the mesh axes of a mode, slowest first. The mode itself checks the sizes (ganymede.job.tensor_modes).
local function axes_of(t)
  local mode = registry.tensor_modes:get(t.mode)
  if t.depth ~= nil and not mode.takes_depth then
    wrong("parallel.tensor.depth", "belongs to mode 2.5d, not to %s", t.mode)
  end
  if t.sequence and not mode.takes_sequence then
    wrong("parallel.tensor.sequence", "cuts the stream between the layers of mode 1d; in %s %s", t.mode,
      "the stream is cut already")
  end
  local ok, axes, key = failure.try(mode.axes, t)
  if not ok then wrong("parallel.tensor", "%s", tostring(axes)) end
  if type(axes) == "string" then wrong(key or "parallel.tensor", "%s", axes) end
  local ranks = 1
  for _, axis in ipairs(axes) do ranks = ranks * axis[2] end
  if ranks ~= t.size then
    wrong("parallel.tensor", "mode %s made axes of %d ranks out of size %d", t.mode, ranks, t.size)
  end
  return axes
end

local function resolve_tensor(given, sequence)
  local t = part(given, "tensor")
  t.size = t.size or 1
  if t.mode == "sequence" then -- Colossal-AI's spelling of a ring
    if sequence.size then wrong("parallel.tensor.mode", "is sequence, and parallel.sequence is given too") end
    sequence.size, sequence.mode = t.size, "ring"
    return { size = 1, mode = "sequence" }, {}
  end
  if t.size > 1 and not t.mode then
    wrong("parallel.tensor", "size %d needs a mode: one of %s", t.size,
      table.concat(parallel.tensor_modes, ", "))
  end
  return t, t.mode and axes_of(t) or {}
end

-- Colossal-AI's names of the ways to cut a model.
local split_words = { balanced = "parameters", parameter = "parameters", layer = "uniform" }

local function check_sizes(split)
  local count = 0
  for _ in pairs(split) do count = count + 1 end
  if count == 0 or count ~= #split then
    wrong("parallel.pipeline.split", "must be a list with the number of sections of each part, such as { 4, 3 }")
  end
  for i, sections in ipairs(split) do
    if not is_size(sections) then
      wrong("parallel.pipeline.split", "[%d] must be a number of sections, at least 1; got %s", i, tostring(sections))
    end
  end
end

-- Returns the settings of the pipeline: size, chunks (nil: the schedule's own number), split.
local function resolve_pipeline(given)
  local p = part(given, "pipeline")
  local split = split_words[p.split] or p.split
  if type(split) == "table" then
    check_sizes(split)
    local parts = p.chunks and p.chunks * (p.size or 1)
    if parts and #split ~= parts then
      wrong("parallel.pipeline.split", "has %d numbers for %d parts (%d stages of %d chunks)", #split, parts,
        p.size or 1, p.chunks)
    end
  elseif split ~= nil and not known(parallel.splits, split) then
    wrong("parallel.pipeline.split", "must be one of %s, or a list of numbers of sections; got %s%s",
      table.concat(parallel.splits, ", "), tostring(split), options.hint(tostring(split), parallel.splits))
  end
  return { size = p.size or 1, chunks = p.chunks, split = split or "parameters" }
end

-- The numbers that divide n, as words; of many the first ones.
local function divisors_of(n)
  local list = {}
  for i = 1, math.sqrt(n) do
    if n % i == 0 then
      list[#list + 1] = i
      if i * i ~= n then list[#list + 1] = n / i end
    end
  end
  table.sort(list)
  return table.concat(list, ", ", 1, math.min(#list, 12)) .. (#list > 12 and ", ..." or "")
end

local function resolve_data(given, world, others)
  local size = part(given, "data").size
  if world % others ~= 0 then
    wrong("parallel", "pipeline * sequence * tensor = %d ranks do not divide the %d rank%s of this job; start %d "
      .. "ranks, or a multiple of that, or choose sizes whose product is one of %s", others, world,
      world == 1 and "" or "s", others, divisors_of(world))
  end
  if size and size * others ~= world then
    wrong("parallel.data", "size %d times %d ranks (pipeline * sequence * tensor) is %d, and this job has %d; leave it "
      .. "out or set it to %d", size, others, size * others, world, world / others)
  end
  return world / others
end

-- The axes of the data ranks, slowest first: copies of what ZeRO divides, the ranks that divide it, and of these the
-- ones that share the experts.
local function data_axes(given, data, expert, others)
  local shard = part(given, "data").shard
  if data % expert ~= 0 then
    wrong("parallel.expert", "size %d does not divide the %d data rank%s it is a part of (the job has %d ranks, and "
      .. "pipeline * sequence * tensor = %d); start %d ranks, or a multiple of that", expert, data,
      data == 1 and "" or "s", data * others, others, others * expert)
  end
  if not shard then return { "data", data / expert }, { "shard", 1 }, { "expert", expert } end
  if data % shard ~= 0 then
    wrong("parallel.data.shard", "%d does not divide the %d data ranks it is a part of", shard, data)
  elseif shard % expert ~= 0 then
    wrong("parallel.data.shard", "%d is no multiple of the %d ranks that share the experts", shard, expert)
  end
  return { "data", data / shard }, { "shard", shard / expert }, { "expert", expert }
end

-- Returns how gradients are summed over data; nil: the reducer chooses.
local function reducer_settings(given)
  local data = part(given, "data")
  return { bucket_mb = data.bucket_mb, overlap = data.overlap }
end

-- Why a list is no order of these axes (lists by part), or nil.
local function problem_of_order(order, by_part)
  local seen = {}
  for i, name in ipairs(order) do
    if not known(parallel.order, name) then
      return ("[%d] must be one of %s; got %s"):format(i, table.concat(parallel.order, ", "), options.literal(name))
    end
    if seen[name] then return ("names %s twice"):format(name) end
    seen[name] = true
    if name == "data" and seen.expert and #by_part.data > 0 and #by_part.expert > 0 then
      return "must name data before expert, which is its inner part"
    end
  end
  for key in pairs(order) do
    if type(key) ~= "number" or key > #order then return "must be a list of names, outermost first" end
  end
  for _, name in ipairs(parallel.order) do
    if #by_part[name] > 0 and not seen[name] then return ("must name %s, which has several ranks"):format(name) end
  end
end

-- Returns the mesh, slowest axis first, without axes of size 1.
local function mesh_of(given, by_part)
  for name, list in pairs(by_part) do
    local cut = {}
    for _, axis in ipairs(list) do cut[#cut + 1] = axis[2] > 1 and axis or nil end
    by_part[name] = cut
  end
  if given.order ~= nil and type(given.order) ~= "table" then
    wrong("parallel.order", "must be a list of names, outermost first; got %s", options.literal(given.order))
  end
  local why = given.order and problem_of_order(given.order, by_part)
  if why then wrong("parallel.order", "%s", why) end
  local axes = {}
  for _, name in ipairs(given.order or parallel.order) do
    for _, axis in ipairs(by_part[name]) do axes[#axes + 1] = axis end
  end
  return axes
end

-- The parts that may give way to fewer ranks (ganymede.job.fewer).
local can_shrink = { "data", "pipeline", "sequence", "tensor" }

local function resolve_shrink(given)
  local list, seen = given.shrink, {}
  if list == nil then return { "data" } end
  if type(list) ~= "table" or #list == 0 then
    wrong("parallel.shrink", "must be a list of names, such as { \"data\" }; got %s", options.literal(list))
  end
  for i, name in ipairs(list) do
    if not known(can_shrink, name) then
      wrong("parallel.shrink", "[%d] must be one of %s; got %s", i, table.concat(can_shrink, ", "),
        options.literal(name))
    end
    if seen[name] then wrong("parallel.shrink", "names %s twice", name) end
    seen[name] = true
  end
  for key in pairs(list) do
    if type(key) ~= "number" or key > #list then wrong("parallel.shrink", "must be a list of names") end
  end
  return { unpack(list) }
end

local function resolve(given, world)
  if given == nil then given = {} end
  if given == "auto" then
    wrong("parallel", "'auto' is planned for recipes that return a table, by run, check and simulate; "
      .. "here give the sizes (`ganymede plan` finds them)")
  end
  if type(given) ~= "table" then wrong("parallel", "must be a table; got %s", tostring(given)) end
  for _, key in ipairs(sorted_keys(given)) do
    if not parallel.fields[key] then
      wrong("parallel." .. key, "is no axis of it%s", options.hint(key, sorted_keys(parallel.fields)))
    end
  end
  local transport = given.transport ~= nil and options.problem(parallel.fields.transport, given.transport)
  if transport then wrong("parallel.transport", "%s", transport) end
  local pipeline, sequence = resolve_pipeline(given), part(given, "sequence")
  local expert = part(given, "expert").size or 1
  local tensor, tensor_axes = resolve_tensor(given, sequence)
  sequence = { size = sequence.size or 1, mode = sequence.mode or "ring" }
  local others = pipeline.size * sequence.size * tensor.size
  local data = resolve_data(given, world, others)
  local copies, shard, inner = data_axes(given, data, expert, others)
  local axes = mesh_of(given, { data = { copies, shard }, expert = { inner },
    pipeline = { { "pipeline", pipeline.size } }, sequence = { { "sequence", sequence.size } }, tensor = tensor_axes })
  return { world = world, data = data, reducer = reducer_settings(given), pipeline = pipeline.size,
    chunks = pipeline.chunks, split = pipeline.split, expert = expert, sequence = sequence, tensor = tensor,
    transport = given.transport or "auto", shard = part(given, "data").shard, shrink = resolve_shrink(given),
    axes = axes }
end

--- Resolves the table `parallel` for a number of ranks.
-- @param given the table `parallel` of a recipe, or nil
-- @param world the number of ranks of the job
-- @return the resolved table; or nil, the message, and the key path it is about ("parallel.tensor")
function parallel.resolve(given, world)
  local ok, result = pcall(resolve, given, world)
  if ok then return result end
  if type(result) ~= "table" or not result.parallel then error(result, 0) end
  return nil, result.key .. ": " .. result.text, result.key, result.text
end

--- Returns the least number of ranks that the table asks for (data that is left open counts as 1, or as the shards or
-- experts inside it); nil if that is unknown.
function parallel.needed(given)
  if type(given) ~= "table" then return 1 end
  local sizes, product = {}, 1
  for _, name in ipairs { "data", "pipeline", "sequence", "tensor", "expert" } do
    local v = given[name]
    if type(v) == "table" then v = v.size end
    if v ~= nil and v ~= "auto" and not is_size(v) then return nil end
    sizes[name] = v ~= "auto" and v or nil
  end
  local shard = type(given.data) == "table" and given.data.shard
  sizes.data = sizes.data or is_size(shard) and shard or sizes.expert
  for _, name in ipairs { "data", "pipeline", "sequence", "tensor" } do product = product * (sizes[name] or 1) end
  return product
end

return parallel
