--- Frees what nobody can reach any more, such as the tensors of earlier examples. An example that compares the bytes in
-- use needs it: otherwise the collector may free such tensors between its two looks.
return function()
  collectgarbage() -- runs finalizers
  collectgarbage() -- frees what they have left
end
