module github.com/trimtab/trimtab/test/vm

go 1.26.0

replace (
	github.com/trimtab/trimtab => ../..
	github.com/trimtab/trimtab/test/real => ../real
)

require (
	github.com/trimtab/trimtab v0.0.0-00010101000000-000000000000
	github.com/trimtab/trimtab/test/real v0.0.0-00010101000000-000000000000
	golang.org/x/sys v0.49.0
	google.golang.org/grpc v1.85.0
	k8s.io/cri-api v0.37.2
)

require (
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
