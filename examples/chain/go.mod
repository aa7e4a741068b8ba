module example/chain

go 1.19

require tollgate.dev/worker v0.1.0

replace tollgate.dev/worker => ../../sdk/go
