package cri

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	hooks "github.com/trimtab/trimtab/api/runtime/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/statefile"
)

// hookedIn is a container as a proxy tells of it.
func hookedIn(r *hooks.ContainerResourceHookRequest, id, pod string) *lifecycle.Container {
	c := &lifecycle.Container{
		ID: id, PodID: pod, Name: r.GetContainerMeta().GetName(), State: lifecycle.StateCreated, Annotations: maps.Clone(r.ContainerAnnotations),
	}
	for _, name := range slices.Sorted(maps.Keys(r.ContainerEnvs)) {
		c.Env = append(c.Env, name+"="+r.ContainerEnvs[name])
	}
	if res := r.ContainerResources; res != nil {
		c.Resources = hookResources(res)
		c.OOMScoreAdj = lifecycle.Some(res.OomScoreAdj)
	}
	return c
}

// hookResources translates resources that are not nil.
func hookResources(r *hooks.LinuxContainerResources) lifecycle.Resources {
	out := lifecycle.Resources{
		CPU: lifecycle.CPU{
			Shares: said(uint64(max(r.CpuShares, 0))), Quota: said(r.CpuQuota), Period: said(uint64(max(r.CpuPeriod, 0))),
			CPUs: r.CpusetCpus, Mems: r.CpusetMems,
		},
		Memory:  lifecycle.Memory{Limit: said(r.MemoryLimitInBytes), Swap: said(r.MemorySwapLimitInBytes)},
		Unified: maps.Clone(r.Unified),
	}
	for _, h := range r.HugepageLimits {
		out.Hugepages = append(out.Hugepages, lifecycle.HugepageLimit{Size: h.GetPageSize(), Limit: h.GetLimit()})
	}
	return out
}

// onlyNew leaves of what is asked for what the runtime does not have.
func onlyNew(asked, has lifecycle.Resources) lifecycle.Resources {
	if asked.CPU.Shares.V == has.CPU.Shares.V {
		asked.CPU.Shares = lifecycle.Opt[uint64]{}
	}
	if q := has.CPU.Quota.V; asked.CPU.Quota.V == q || asked.CPU.Quota.V < 0 && q <= 0 {
		asked.CPU.Quota = lifecycle.Opt[int64]{}
	}
	if asked.CPU.Period.V == has.CPU.Period.V {
		asked.CPU.Period = lifecycle.Opt[uint64]{}
	}
	if asked.CPU.CPUs == has.CPU.CPUs {
		asked.CPU.CPUs = ""
	}
	if asked.CPU.Mems == has.CPU.Mems {
		asked.CPU.Mems = ""
	}
	if m := has.Memory.Limit.V; asked.Memory.Limit.V == m || asked.Memory.Limit.V < 0 && m <= 0 {
		asked.Memory.Limit = lifecycle.Opt[int64]{}
	}
	asked.Hugepages = nil // no proxy changes them
	return asked
}

// hooked lists what an answer to a proxy carries. Numbers of 0 and empty lists
// say nothing, and a limit of memory below 0 is passed over by proxies: the
// keeper lifts it.
var hooked = map[lifecycle.Field]func(*hooks.LinuxContainerResources, lifecycle.Value) bool{
	lifecycle.CPUShares:  hookNumber(func(r *hooks.LinuxContainerResources) *int64 { return &r.CpuShares }, 1),
	lifecycle.CPUQuota:   hookNumber(func(r *hooks.LinuxContainerResources) *int64 { return &r.CpuQuota }, -1),
	lifecycle.CPUPeriod:  hookNumber(func(r *hooks.LinuxContainerResources) *int64 { return &r.CpuPeriod }, 1),
	lifecycle.CPUSetCPUs: hookList(func(r *hooks.LinuxContainerResources) *string { return &r.CpusetCpus }),
	lifecycle.CPUSetMems: hookList(func(r *hooks.LinuxContainerResources) *string { return &r.CpusetMems }),
	lifecycle.MemoryLimit: func(r *hooks.LinuxContainerResources, v lifecycle.Value) bool {
		if v.Int < 0 && r.MemoryLimitInBytes <= 0 {
			return true // as it is
		}
		return hookNumber(func(r *hooks.LinuxContainerResources) *int64 { return &r.MemoryLimitInBytes }, 1)(r, v)
	},
	lifecycle.Unified: func(r *hooks.LinuxContainerResources, v lifecycle.Value) bool {
		r.Unified = withPair(r.Unified, v.Key, v.Text)
		return v.Key != ""
	},
	lifecycle.OOMScoreAdj: func(r *hooks.LinuxContainerResources, v lifecycle.Value) bool {
		r.OomScoreAdj = v.Int
		return true
	},
}

func hookNumber(of func(*hooks.LinuxContainerResources) *int64, least int64) func(*hooks.LinuxContainerResources, lifecycle.Value) bool {
	return func(r *hooks.LinuxContainerResources, v lifecycle.Value) bool {
		if v.Int == 0 || v.Int < least {
			return false
		}
		*of(r) = v.Int
		return true
	}
}

func hookList(of func(*hooks.LinuxContainerResources) *string) func(*hooks.LinuxContainerResources, lifecycle.Value) bool {
	return func(r *hooks.LinuxContainerResources, v lifecycle.Value) bool {
		if v.Text == "" {
			return false
		}
		*of(r) = v.Text
		return true
	}
}

// CarriesHooks says whether an answer to a proxy's call of this kind can hold
// the field of a container.
func CarriesHooks(kind lifecycle.Kind, f lifecycle.Field) bool {
	resource := hooked[f] != nil
	switch kind {
	case lifecycle.CreateContainer:
		return resource || f == lifecycle.Env || f == lifecycle.Annotation
	case lifecycle.UpdateContainer:
		return resource && f != lifecycle.OOMScoreAdj
	}
	return false
}

// answer puts values into the answer to a proxy, which has what was asked
// already. Where no resources were told none are answered: proxies would take
// what is missing in them for said.
func answer(resp *hooks.ContainerResourceHookResponse, values []lifecycle.Value) (left []lifecycle.Value) {
	for _, v := range values {
		set := hooked[v.Field]
		switch {
		case v.Scope != lifecycle.OfContainer:
		case v.Field == lifecycle.Annotation && v.Key != "":
			resp.ContainerAnnotations = withPair(resp.ContainerAnnotations, v.Key, v.Text)
			continue
		case v.Field == lifecycle.Env && v.Gone:
			delete(resp.ContainerEnvs, v.Key)
			continue
		case v.Field == lifecycle.Env && v.Key != "":
			resp.ContainerEnvs = withPair(resp.ContainerEnvs, v.Key, v.Text)
			continue
		case set != nil && resp.ContainerResources != nil && set(resp.ContainerResources, v):
			continue
		}
		left = append(left, v)
	}
	return left
}

// Register tells proxies of the hook service, by a file of the form they read.
// It is put in place at once, whole, and only where it says something else.
func Register(file, socket string, fail bool) error {
	policy := "Ignore"
	if fail {
		policy = "Fail"
	}
	text, err := json.MarshalIndent(struct {
		Endpoint string   `json:"remote-endpoint"`
		Policy   string   `json:"failure-policy"`
		Stages   []string `json:"runtime-hooks"`
	}{socket, policy, []string{
		"PreRunPodSandbox", "PreCreateContainer", "PreStartContainer", "PostStartContainer",
		"PreUpdateContainerResources", "PostStopContainer", "PostStopPodSandbox",
	}}, "", "\t")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if have, err := os.ReadFile(file); err == nil && bytes.Equal(have, text) {
		return nil
	}
	dir := filepath.Dir(file)
	if err := statefile.New(statefile.SharedDisk(dir), dir).WriteShared(filepath.Base(file), text); err != nil {
		return fmt.Errorf("register the hook service with proxies: %w", err)
	}
	return nil
}
