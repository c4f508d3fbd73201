package criclient

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/clock"
)

// FuzzVerbose reads any verbose status of a pod and a container.
func FuzzVerbose(f *testing.F) {
	f.Add(`{"sandboxID":"p","pid":3,"runtimeSpec":{"process":{"args":["a"],"env":["A=b"],"oomScoreAdj":-5},"mounts":[{"destination":"/m"}],
"linux":{"cgroupsPath":"/kubepods/p/c","resources":{"cpu":{"shares":2},"hugepageLimits":[{}]},"devices":[{}]}},"config":{"linux":{"resources":{"cpu_quota":-1}},"CDI_devices":[{}]}}`)
	f.Add(`{"config":{"linux":{"overhead":{"hugepage_limits":[null]}},"CDI_devices":[null]}}`)
	f.Add(`{"runtimeSpec":{"linux":null,"process":null},"config":{"linux":null}}`)
	f.Add(`{"runtimeSpec":{"annotations":{"pod-linux-resources.crio.io":"{\"unified\":{\"a\":\"b\"}}"}}}`)
	f.Add(`[1`)
	f.Add(`{"runtimeSpec":{"mounts":[` + strings.Repeat(`{"destination":"/m"},`, 5_000) + `{}]}}`)
	f.Fuzz(func(t *testing.T, info string) {
		defer clock.Watch(t, len(info))()
		v, _ := readVerbose(map[string]string{"info": info})
		v.addToPod(&lifecycle.Pod{})
		v.addToContainer(&lifecycle.Container{})
		_ = v.resources()
	})
}

// TestVerbose: an unreadable part does not affect the rest, and the error names it.
func TestVerbose(t *testing.T) {
	v, err := readVerbose(map[string]string{"info": `{"pid":"none","runtimeSpec":{"annotations":{"a":"spec"},"linux":{"cgroupsPath":"/p/c"}},
"config":{"linux":{"cgroup_parent":"/p","resources":{"cpu_shares":7,"unified":{"k":"v"},"hugepage_limits":[{"page_size":"2MB","limit":1}]}}}}`})
	if err == nil {
		t.Error("a text was read as a number")
	}
	p, c := &lifecycle.Pod{}, &lifecycle.Container{Annotations: map[string]string{"b": "status"}}
	v.addToPod(p)
	v.addToContainer(c)
	if r := p.Resources; p.CgroupParent != "/p" || r == nil || r.CPU.Shares.V != 7 || r.Unified["k"] != "v" || len(r.Hugepages) != 1 {
		t.Errorf("%+v", p)
	}
	if c.CgroupsPath != "/p/c" || c.Annotations["a"] != "spec" || c.Annotations["b"] != "status" {
		t.Errorf("%+v", c)
	}
}
