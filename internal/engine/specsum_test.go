package engine

import (
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestRequestFromSpec compares sums with those of the kubelet.
func TestRequestFromSpec(t *testing.T) {
	ctr := func(k lifecycle.ContainerKind, milli int64) lifecycle.ContainerSpec {
		return lifecycle.ContainerSpec{Kind: k, Requests: lifecycle.Amounts{lifecycle.ResourceCPU: milli}}
	}
	for name, tc := range map[string]struct {
		spec lifecycle.PodSpec
		want uint64 // 0 for no request
	}{
		"apps":                      {lifecycle.PodSpec{Containers: []lifecycle.ContainerSpec{ctr(lifecycle.App, 1000), ctr(lifecycle.App, 500)}}, 1536},
		"an init":                   {lifecycle.PodSpec{Containers: []lifecycle.ContainerSpec{ctr(lifecycle.Init, 4000), ctr(lifecycle.App, 500)}}, 4096},
		"a sidecar":                 {lifecycle.PodSpec{Containers: []lifecycle.ContainerSpec{ctr(lifecycle.Sidecar, 1000), ctr(lifecycle.Init, 1000), ctr(lifecycle.App, 500)}}, 2048},
		"a larger init after":       {lifecycle.PodSpec{Containers: []lifecycle.ContainerSpec{ctr(lifecycle.Sidecar, 1000), ctr(lifecycle.Init, 6000), ctr(lifecycle.App, 2000)}}, 7168},
		"a larger init before":      {lifecycle.PodSpec{Containers: []lifecycle.ContainerSpec{ctr(lifecycle.Init, 6000), ctr(lifecycle.Sidecar, 1000), ctr(lifecycle.App, 2000)}}, 6144},
		"of the pod, with overhead": {lifecycle.PodSpec{Requests: lifecycle.Amounts{lifecycle.ResourceCPU: 3000}, Overhead: lifecycle.Amounts{lifecycle.ResourceCPU: 1000}}, 4096},
		"overhead":                  {lifecycle.PodSpec{Containers: []lifecycle.ContainerSpec{ctr(lifecycle.App, 1000)}, Overhead: lifecycle.Amounts{lifecycle.ResourceCPU: 250}}, 1280},
		"of the pod":                {lifecycle.PodSpec{Containers: []lifecycle.ContainerSpec{ctr(lifecycle.App, 1000)}, Requests: lifecycle.Amounts{lifecycle.ResourceCPU: 3000}}, 3072},
		"ephemeral counts":          {lifecycle.PodSpec{Containers: []lifecycle.ContainerSpec{ctr(lifecycle.Ephemeral, 1000)}}, 0},
		"nothing":                   {lifecycle.PodSpec{}, 0},
		"more than there is":        {lifecycle.PodSpec{Containers: []lifecycle.ContainerSpec{ctr(lifecycle.App, 1<<62), ctr(lifecycle.App, 1<<62)}}, 0},
	} {
		var got uint64
		if r := RequestFromSpec(&tc.spec); r != nil {
			got = r.CPU.Shares.V
			if r.CPU.Quota.Set || r.Memory.Limit.Set {
				t.Errorf("%s: limits are guessed: %+v", name, r)
			}
		}
		if got != tc.want {
			t.Errorf("%s: %d shares, want %d", name, got, tc.want)
		}
	}
}
