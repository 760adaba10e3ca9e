--- The functions that layers take by name in their option `activation`.
-- @module ganymede.nn.functions
local M = {}

--- Those that the kernel of a product also computes (kernels/functions.def).
M.in_products = { "relu", "gelu", "gelu_tanh", "silu" }

--- Gates: a function of one tensor, times another one (Shazeer 2020, arXiv:2002.05202).
M.gates = { "reglu", "geglu", "geglu_tanh", "swiglu" }

--- What stands between the layers of an MLP.
M.of_mlps = {}
for _, list in ipairs { M.in_products, M.gates } do
  for _, name in ipairs(list) do M.of_mlps[#M.of_mlps + 1] = name end
end

local gates = {}
for _, name in ipairs(M.gates) do gates[name] = true end

--- Is it a gate, of two tensors?
function M.is_gate(name) return gates[name] or false end

return M
