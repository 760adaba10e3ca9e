-- Which class stands for a layer in which mode, how its parameters are stored, and how its result lies: the table of
-- reference layouts. Depth 1 is 2D, bit for bit.
-- ranks: 2 4 8
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local against = require "spec.tensor.against_serial"
local all_cases = require "spec.tensor.cases"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local gm = require "ganymede"
local nn = require "ganymede.nn"
local numeric = require "spec.support.numeric"
local stream = require "ganymede.nn.stream"

local ROWS = 13

local function linear(partition, outputs)
  return function() return nn.Linear { inputs = 6, outputs = outputs or 8, partition = partition } end
end

local function table_of(limit)
  return function() return nn.Embedding { count = ROWS, width = 6, vocab_parallel_limit = limit } end
end

local function classifier(limit)
  return function() return nn.Classifier { inputs = 6, classes = ROWS, vocab_parallel_limit = limit } end
end

local function patches()
  return nn.PatchEmbedding { image_size = 4, patch_size = 2, channels = 2, width = 6 }
end

local x, ids, images = against.values(5, 4, 6), against.places({ 5, 4 }, ROWS), against.values(5, 2, 4, 4)

-- What is built, from what, in the order of the columns below.
local layers = {
  { "Linear, first", linear "column", x }, { "Linear, second", linear "row", x }, { "Linear, alone", linear(), x },
  { "Linear to fewer", linear("column", 5), x },
  { "LayerNorm", function() return nn.LayerNorm(6) end, x }, { "RMSNorm", function() return nn.RMSNorm(6) end, x },
  { "Embedding", table_of(ROWS), ids }, { "wide Embedding", table_of(ROWS - 1), ids },
  { "PatchEmbedding", patches, images },
  { "Classifier", classifier(ROWS), x }, { "wide Classifier", classifier(ROWS - 1), x },
}

local WHOLE, OUTER, INNER = "-,-,-", "weight.input,-,output", "weight.output,-,input"

-- By the kind of layer: class, layouts of its parameters in the order of declaration, layout of the result.
local one_d = {
  ["Linear, first"] = { "Linear1D", "tensor,-", "tensor", "-,-,tensor" },
  ["Linear, second"] = { "Linear1D", "-,tensor", "-", WHOLE },
  ["Linear, alone"] = { "Linear1D", "tensor,-", "tensor", WHOLE },
  ["Linear to fewer"] = { "Linear1D", "tensor,-", "tensor", "-,-,tensor" },
  ["LayerNorm"] = { "LayerNorm1D", "-", "-", WHOLE }, ["RMSNorm"] = { "RMSNorm1D", "-", WHOLE },
  ["Embedding"] = { "Embedding1D", "-,tensor", WHOLE },
  ["wide Embedding"] = { "VocabParallelEmbedding1D", "tensor,-", WHOLE },
  ["PatchEmbedding"] = { "PatchEmbedding1D", "-,-", "-", "-,-,-", "-,-,-", WHOLE },
  ["Classifier"] = { "Classifier1D", "-,tensor", "-", WHOLE },
  ["wide Classifier"] = { "VocabParallelClassifier1D", "tensor,-", "tensor", "-,-,tensor" },
}

-- Batches that data cuts stay cut.
local function with_data(rows)
  local made = {}
  for kind, row in pairs(rows) do
    made[kind] = { unpack(row) }
    made[kind][#row] = row[#row]:gsub("^%-", "data")
  end
  return made
end

-- The stream of Megatron's sequence mode is cut along the sequence between pairs of Linears.
local function with_sequence()
  local made = {}
  for kind, row in pairs(one_d) do
    made[kind] = { unpack(row) }
    if row[#row] == WHOLE then made[kind][#row] = "-,tensor,-" end
  end
  made["Classifier"][4] = WHOLE -- a sum over what cut the width
  return made
end

local function two_d(suffix, rows)
  local y, whole = rows .. ",-,col", rows .. ",-,-"
  return {
    ["Linear, first"] = { "Linear" .. suffix, "col,row", "col.row", y },
    ["Linear, second"] = { "Linear" .. suffix, "col,row", "col.row", y },
    ["Linear, alone"] = { "Linear" .. suffix, "col,row", "col.row", y },
    ["Linear to fewer"] = { "Linear" .. suffix, "row,col", "col.row", y },
    ["LayerNorm"] = { "LayerNorm" .. suffix, "col.row", "col.row", y },
    ["RMSNorm"] = { "RMSNorm" .. suffix, "col.row", y },
    ["Embedding"] = { "Embedding" .. suffix, "-,col.row", y },
    ["wide Embedding"] = { "VocabParallelEmbedding" .. suffix, "row,col", y },
    ["PatchEmbedding"] = { "PatchEmbedding" .. suffix, "col.row,-", "col.row", "-,-,col.row", "-,-,col.row", y },
    ["Classifier"] = { "Classifier" .. suffix, "-,col.row", "-", whole },
    ["wide Classifier"] = { "VocabParallelClassifier" .. suffix, "col,row", "col.row", y },
  }
end

local three_d = {
  ["Linear, first"] = { "Linear3D", "input,output.weight", "input", INNER },
  ["Linear, second"] = { "Linear3D", "output,input.weight", "output", OUTER },
  ["Linear, alone"] = { "Linear3D", "input,output.weight", "input", INNER },
  ["Linear to fewer"] = { "Linear3D", "input,output.weight", "input", INNER },
  ["LayerNorm"] = { "LayerNorm3D", "output", "output", OUTER }, ["RMSNorm"] = { "RMSNorm3D", "output", OUTER },
  ["Embedding"] = { "Embedding3D", "-,output", OUTER },
  ["wide Embedding"] = { "VocabParallelEmbedding3D", "input.weight,output", OUTER },
  ["PatchEmbedding"] = { "PatchEmbedding3D", "output,-", "output", "-,-,output", "-,-,output", OUTER },
  ["Classifier"] = { "Classifier3D", "-,output", "-", "weight.input,-,-" },
  ["wide Classifier"] = { "VocabParallelClassifier3D", "input.weight,output", "input", INNER },
}

local meshes = ({
  [2] = {
    { "1d", { tensor = { size = 2, mode = "1d" } }, one_d },
    { "1d with sequence", { tensor = { size = 2, mode = "1d", sequence = true } }, with_sequence() },
  },
  [4] = {
    { "2d", { tensor = { size = 4, mode = "2d" } }, two_d("2D", "row") },
    { "1d and data", { data = 2, tensor = { size = 2, mode = "1d" } }, with_data(one_d) },
  },
  [8] = {
    { "2d and data", { data = 2, tensor = { size = 4, mode = "2d" } }, two_d("2D", "data.row") },
    { "2.5d", { tensor = { size = 8, mode = "2.5d", depth = 2 } }, two_d("2p5D", "depth.row") },
    { "3d", { tensor = { size = 8, mode = "3d" } }, three_d },
  },
})[core.world()]

-- { class, layouts of parameters, layout of the result } of a layer on this mesh; what it is given is cut by data alone
-- or lies as the stream does.
local function found(build, input)
  local layer = build()
  local row = { layer.name }
  for _, p in ipairs(layer:named_parameters()) do row[#row + 1] = both.describe(p.tensor) end
  local given = input(1):redistribute { cuts = { "data" } }
  row[#row + 1] = both.describe(layer(input == x and stream.join(given) or given))
  return row
end

-- Bytes of a list of lists of numbers.
local function bits(value)
  if type(value) ~= "table" then return type(value) == "number" and ("%a"):format(value) or tostring(value) end
  local said = {}
  for i, part in ipairs(value) do said[i] = bits(part) end
  return table.concat(said, " ")
end

describe("placements", function()
  for _, mesh in ipairs(meshes) do
    it("of layers in mode " .. mesh[1], function()
      against.install(mesh[2])
      for _, layer in ipairs(layers) do
        gm.scope(function() assert.same(mesh[3][layer[1]], found(layer[2], layer[3]), layer[1]) end)
      end
    end)

    it("are cut over rows above vocab_parallel_limit in mode " .. mesh[1], function()
      against.install(mesh[2])
      for _, class in ipairs { "Embedding", "Classifier" } do
        local function name_at(rows, more)
          local options = { width = class == "Embedding" and 2 or nil, inputs = class == "Classifier" and 2 or nil,
                            [class == "Embedding" and "count" or "classes"] = rows }
          for key, value in pairs(more or {}) do options[key] = value end
          return nn[class](options).name
        end
        assert.matches("^" .. class, name_at(2048))
        assert.matches("^VocabParallel" .. class, name_at(2049))
        assert.matches("^VocabParallel" .. class, name_at(2048, { vocab_parallel_limit = 2047 }))
      end
      for _, limit in ipairs { 12, 13 } do -- whoever shares a table is of its kind
        local owner = table_of(limit)()
        local head = nn.Classifier { inputs = 6, classes = ROWS, weight = owner }
        assert.equal(limit == 12, owner.vocabulary_parallel == true)
        assert.equal(limit == 12, head.vocabulary_parallel == true)
      end
    end)
  end

  it("are reached from any layout: cut by any one axis anywhere, or a sum over it", function()
    for _, mesh in ipairs(meshes) do
      against.install(mesh[2])
      local axes = {}
      for _, axis in ipairs(core.mesh()) do
        if axis.name ~= "data" then axes[#axes + 1] = axis.name end
      end
      for _, layer in ipairs { linear "row"(), linear "column"(), nn.LayerNorm(6) } do
        local want = layer(stream.join(x(1)))
        for _, axis in ipairs(axes) do
          for d = 1, 4 do
            local layout = d == 4 and { partial = { axis } } or { cuts = { {}, {}, {} } }
            if d < 4 then layout.cuts[d] = { axis } end
            gm.scope(function()
              local y = layer(x(1):redistribute(layout))
              if layer.name:find "Linear" then assert.equal(both.describe(want), both.describe(y)) end
              numeric.agree(core.gather(y), core.gather(want), 1e-6) -- f32: another order of a few sums
            end)
          end
        end
      end
    end
  end)

  it("leave the row of padding_index zero, and without a gradient, wherever it lies", function()
    for _, mesh in ipairs(meshes) do
      against.install(mesh[2])
      for _, limit in ipairs { ROWS, ROWS - 1 } do
        for _, padding in ipairs { 0, 8, ROWS - 1 } do
          gm.scope(function()
            local layer = nn.Embedding {
              count = ROWS, width = 6, padding_index = padding, vocab_parallel_limit = limit,
            }
            layer(gm.arange(ROWS):reshape(1, ROWS)):sum():backward() -- each row once
            local weight, gradient = core.gather(layer.weight):totable(), core.gather(layer.weight:grad()):totable()
            for i = 0, ROWS - 1 do
              for d = 1, 6 do
                assert.equal(i == padding, weight[i + 1][d] == 0)
                assert.equal(i == padding and 0 or 1, gradient[i + 1][d])
              end
            end
          end)
        end
      end
    end
  end)

  it("have explicit names in every mode", function()
    for _, suffix in ipairs { "1D", "2D", "2p5D", "3D" } do
      for _, name in ipairs { "Linear", "LayerNorm", "RMSNorm", "Embedding", "VocabParallelEmbedding",
        "PositionEmbedding", "PatchEmbedding", "Classifier", "VocabParallelClassifier", "CrossEntropyLoss",
        "VocabParallelCrossEntropyLoss", "Dropout", "Accuracy", "MultiHeadAttention", "MLP", "TransformerBlock" } do
        assert.equal(name .. suffix, nn[name .. suffix].name)
      end
    end
    if core.world() ~= 2 then return end
    against.install(meshes[1][2])
    for _, case in ipairs { { "Linear1D_Col", {}, "-,-,tensor" }, { "Linear1D_Col", { gather_output = true }, WHOLE },
      { "Linear1D_Row", {}, WHOLE } } do
      gm.scope(function()
        case[2].in_features, case[2].out_features = 6, 8
        assert.equal(case[3], both.describe(nn[case[1]](case[2])(x(1))))
      end)
    end
  end)

  if core.world() == 8 then
    it("look a sample up once for all ranks", function()
      local B, S, H, q = 8, 4, 6, 2
      -- Mesh, axis of the sum over the rows of a wide table, parts of the ids: a rank scatters the sum of B S / parts
      -- vectors of H / q numbers.
      for _, case in ipairs {
        { { tensor = { size = 8, mode = "2.5d", depth = 2 } }, "row", 2, "depth,-" },
        { { tensor = { size = 8, mode = "3d" } }, "input", 2, "weight,-" },
      } do
        against.install(case[1])
        gm.scope(function()
          local layer = nn.Embedding { count = ROWS, width = H, vocab_parallel_limit = 1 }
          layer:materialize()
          local index = against.places({ B, S }, ROWS)(1)
          assert.equal(case[4], both.describe(layer:enter(index)))
          core.comm_reset_traffic()
          gm.no_grad(function() layer(index) end)
          local sent = 0
          for _, entry in ipairs(core.comm_traffic()) do
            if entry.op == "reduce_scatter" then
              assert.equal(case[2], entry.group)
              sent = sent + entry.bytes
            end
          end
          assert.equal(4 * (q - 1) / q * B / case[3] * S * H / q, sent)
        end)
      end
    end)
  end

  if core.world() == 4 then
    it("turn a shared table over where that sends half", function()
      against.install { tensor = { size = 4, mode = "2d" } }
      local q, K, N = 2, 6, 60
      for _, M in ipairs { 8, 64 } do
        gm.scope(function()
          local owner = nn.Embedding { count = N, width = K, vocab_parallel_limit = 1 }
          local head = nn.Classifier { inputs = K, classes = N, weight = owner, bias = false }
          local hidden = stream.join(gm.zeros { M, K }):requires_grad(true)
          core.comm_reset_traffic()
          head(hidden):sum():backward()
          local sent = 0
          for _, entry in ipairs(core.comm_traffic()) do sent = sent + entry.bytes / 4 end
          -- Broadcasts and sums of SUMMA cost the ranks of a group (q - 1) n each, on the mean over the ranks.
          local as_it_lies, turned = 3 * (K * N + M * N), 3 * (M * K + K * N) + 4 * K * N
          local all = gm.comm.all_reduce(gm.tensor({ sent }, { dtype = "f64" })):item()
          assert.equal((q - 1) * (M == 64 and turned or as_it_lies), all)
          assert.equal(M == 64, 2 * turned <= as_it_lies)
        end)
      end
    end)

    it("of 2.5D with depth 1 give the bits of 2D", function()
      local before = gm.default_dtype()
      gm.set_default_dtype "f32"
      local flat, deep = { tensor = { size = 4, mode = "2d" } }, { tensor = { size = 4, mode = "2.5d", depth = 1 } }
      for _, case in ipairs(all_cases(2, 4)) do
        local a, b = against.numbers(flat, case), against.numbers(deep, case)
        assert.equal(bits(a.results), bits(b.results), case.name)
        assert.equal(bits(a.inputs), bits(b.inputs), case.name)
        for _, name in ipairs(a.names) do
          assert.equal(bits(a.gradients[name]), bits(b.gradients[name]), case.name)
        end
      end
      gm.set_default_dtype(before)
    end)
  end
end)
