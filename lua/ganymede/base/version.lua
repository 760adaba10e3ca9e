--- The version of Ganymede, as `ganymede version` prints it.
return "0.2.0"
