module tollgate.dev/worker

go 1.19
