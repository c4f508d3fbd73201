package record

import (
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// BenchmarkStamp signs the record of a container with values of two resource plugins.
func BenchmarkStamp(b *testing.B) {
	s := NewSigner(make([]byte, 32))
	r := lifecycle.Record{Version: lifecycle.RecordVersion, Generation: 17, CPUs: "2-3"}
	r.Managed = []lifecycle.Field{lifecycle.CPUSetCPUs, lifecycle.CPUShares, lifecycle.CPUQuota}
	r.Pristine.CPU.Shares, r.Pristine.CPU.Quota, r.Pristine.CPU.Period = lifecycle.Some[uint64](2048), lifecycle.Some[int64](200000), lifecycle.Some[uint64](100000)
	r.Pristine.Memory.Limit = lifecycle.Some[int64](1 << 30)
	for _, key := range []string{"GIVEN_nic", "GIVEN_pool"} {
		r.HookServerValues = append(r.HookServerValues, lifecycle.Value{Field: lifecycle.Env, Key: key, Text: "eth1", Why: lifecycle.Reason{Hook: "resource plugin", Source: "example.com/nic"}})
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Stamp("5f0c64a8-7d1e-4e6b-9a37-000000000001", "app", r)
	}
}
