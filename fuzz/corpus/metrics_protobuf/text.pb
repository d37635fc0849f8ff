# HELP a b
a 1
