--- Differentiable ops on tensors. Dimensions count from 1, or from -1 at the end.
--
-- All work on tensors of any layout that has a meaning for them, and refuse the others with both layouts printed.
-- Collective, because they communicate inside: linear, norms, cross_entropy and argmax where the dimension that they
-- work along is cut, attention where the sequences are. embedding of a table whose rows are cut, and select along a
-- dimension that is cut, give a sum over those axes that has not been made: :settle() makes it.
--
-- The reference has each: `ganymede help ops.linear`, from bindings/docs/ops.def, views.def, images.def and tables.def,
-- and from ganymede.tensor.composed and ganymede.tensor.einsum, which have those that are made of others.
-- @module ganymede.tensor.ops
local ops = require("ganymede.core").ops
for name, fn in pairs(require "ganymede.tensor.composed") do ops[name] = fn end
ops.einsum = require "ganymede.tensor.einsum"

return require("ganymede.base.missing").guard("ops", ops)
