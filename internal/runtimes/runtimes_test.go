package runtimes

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

func memory(n int64) lifecycle.Value { return lifecycle.Value{Field: lifecycle.MemoryLimit, Int: n} }

// TestTakes: values that each runtime refuses, as recorded or by its source.
func TestTakes(t *testing.T) {
	const mi = 1 << 20
	for _, tc := range []struct {
		name, release string
		way           Protocol
		call          Call
		v             lifecycle.Value
		takes         bool
	}{
		{"cri-o", "1.36.3", NRI, CreateCall, memory(-1), false},
		{"cri-o", "1.36.3", CRI, CreateCall, memory(-1), false},
		{"cri-o", "1.36.3", CRI, CreateCall, memory(12*mi - 1), false},
		{"cri-o", "1.36.3", CRI, CreateCall, memory(12 * mi), true},
		{"cri-o", "1.36.3", NRI, KubeletUpdate, memory(-1), false},
		{"cri-o", "1.36.3", NRI, KubeletUpdate, memory(8 * mi), true},
		{"cri-o", "1.36.3", NRI, AgentUpdate, memory(-1), true},
		{"cri-o", "1.36.3", CRI, AgentUpdate, memory(-1), false},
		{"cri-o", "1.33.9", CRI, KubeletUpdate, memory(-1), true},
		{"cri-o", "1.33.9", CRI, CreateCall, memory(-1), false},
		{"cri-o", "an unknown release", CRI, KubeletUpdate, memory(-1), false},
		{"containerd", "v2.1.4", CRI, CreateCall, memory(-1), true},
		{"containerd", "v1.6.38", CRI, KubeletUpdate, memory(-1), true},
		{"containerd", "v1.7.24", NRI, CreateCall, memory(2 * mi), true},
		{"trimtab-sim", "0.12.5", NRI, CreateCall, memory(-1), true},
		{"iSulad", "2.1.5", CRI, CreateCall, memory(-1), false},
		{"iSulad", "2.1.5", CRI, AgentUpdate, memory(4*mi - 1), false},
		{"v2", "2.0.0-beta.2+unknown", NRI, CreateCall, memory(4 * mi), true},
		{"v2", "2.0.0-beta.2+unknown", NRI, KubeletUpdate, memory(-1), false},
		{"docker", "29.2", CRI, CreateCall, memory(-1), false},
		{"docker", "29.2", CRI, CreateCall, memory(6 * mi), true},
		{"docker", "29.2", CRI, CreateCall, lifecycle.Value{Field: lifecycle.Unified, Key: "cpu.idle", Text: "1"}, false},
		{"an unknown runtime", "1", CRI, CreateCall, memory(-1), false},
		{"an unknown runtime", "1", CRI, CreateCall, memory(12 * mi), true},
		{"containerd", "v2.1.4", CRI, CreateCall, lifecycle.Value{Field: lifecycle.CPUShares, Int: 1}, false},
		{"containerd", "v2.1.4", CRI, CreateCall, lifecycle.Value{Field: lifecycle.CPUShares, Int: 2}, true},
		{"containerd", "v2.1.4", CRI, CreateCall, lifecycle.Value{Field: lifecycle.CPUShares, Int: 262145}, false},
		{"containerd", "v2.1.4", CRI, CreateCall, lifecycle.Value{Field: lifecycle.CPUQuota, Int: -1}, true},
		{"containerd", "v2.1.4", CRI, CreateCall, lifecycle.Value{Field: lifecycle.CPUQuota, Int: 999}, false},
		{"containerd", "v2.1.4", CRI, CreateCall, lifecycle.Value{Field: lifecycle.CPUPeriod, Int: 1000001}, false},
		{"containerd", "v1.7.24", CRI, CreateCall, lifecycle.Value{Field: lifecycle.CDIDevice, Key: "a/b=c"}, false},
		{"containerd", "v2.0.1", CRI, CreateCall, lifecycle.Value{Field: lifecycle.CDIDevice, Key: "a/b=c"}, true},
	} {
		r := Identify(tc.name, tc.release, Version{})
		why := r.WhyNotAccepted(tc.way, tc.call, tc.v)
		if (why == "") != tc.takes {
			t.Errorf("%s %s: %s of %s %d: %q", tc.name, tc.release, tc.call, tc.v.Field, tc.v.Int, why)
		}
		if why != "" && !strings.HasPrefix(why, tc.name+" "+tc.release+" ") {
			t.Errorf("%q does not name the runtime", why)
		}
	}
}

// TestRules: each row has a source, refers to an existing runtime and field, and can be printed.
func TestRules(t *testing.T) {
	known := map[string]bool{EveryRuntime: true, UnknownRuntime: true}
	for _, n := range reportedNames {
		known[n] = true
	}
	for _, r := range Rules() {
		if r.Source == "" || !known[r.Runtime] || len(r.Protocols) == 0 || len(r.Calls) == 0 || r.Description() == "" {
			t.Errorf("%+v", r)
		}
	}
}
