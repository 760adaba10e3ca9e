-- Jobs that share a cluster.
return {
  {
    name = "1390-restart-free", file = "lua/ganymede/cluster/simulator.lua",
    find = "  job.stands = restart\n",
    replace = "  job.stands = 0\n",
    breaks = "a restart costs no time",
    test = "spec/cluster/policies_spec.lua -f 'its work is done'",
  },
  {
    name = "1391-places-counted", file = "lua/ganymede/cluster/simulator.lua",
    find = "    if free < 0 then",
    replace = "    if free < -1 then",
    breaks = "a policy gives a place away twice",
    test = "spec/cluster/policies_spec.lua -f 'not there'",
  },
  {
    name = "1392-gain-of-noise", file = "lua/ganymede/cluster/goodput.lua",
    find = "local rest = var / scale + sqr",
    replace = "local rest = var + sqr / scale",
    breaks = "large batches are worth most where there is no noise",
    test = "spec/cluster/goodput_spec.lua -f gains",
  },
  {
    name = "1393-fit-overlap", file = "lua/ganymede/cluster/fit.lua",
    find = "by_two[at] = by_two[at] + late * dw * m[names[at]] / network",
    replace = "by_two[at] = by_two[at] - late * dw * m[names[at]] / network",
    breaks = "the fit of a network's constant goes the wrong way",
    test = "spec/cluster/goodput_spec.lua -f 'comes back'",
  },
  {
    name = "1394-elastic-sharing", file = "lua/ganymede/cluster/policies/elastic.lua",
    find = "      if value and value > new[g] then new[g], taken[g] = value, k end",
    replace = "      if value and value > new[g] and k < 4 then new[g], taken[g] = value, k end",
    breaks = "no job gets a whole node",
    test = "spec/cluster/policies_spec.lua -f 'best of all'",
  },
  {
    name = "1395-elastic-apart", file = "lua/ganymede/cluster/policies/elastic.lua",
    find = "  if all then return allocations end",
    replace = "  do return allocations end",
    breaks = "a wide job waits because small ones lie apart",
    test = "spec/cluster/policies_spec.lua -f 'lie apart'",
  },
  {
    name = "1396-tiresias-threshold", file = "lua/ganymede/cluster/policies/tiresias.lua",
    find = "self.ran[name] * by[name].wanted >= self.threshold",
    replace = "self.ran[name] >= self.threshold",
    breaks = "service is counted in seconds, not in GPU-seconds",
    test = "spec/cluster/policies_spec.lua -f 'has had nothing'",
  },
  {
    name = "1397-profile-rotation", file = "lua/ganymede/cluster/profile.lua",
    find = "    if other < least then least = other end",
    replace = "    if other > least then least = other end",
    breaks = "a placement is not found by its rotations",
    test = "spec/cluster/goodput_spec.lua -f 'linear between'",
  },
}
