package hook

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// CPUEnv sets environment variables with a container's CPUs, for programs that size thread
// pools.
type CPUEnv struct {
	// Defaults are the variables in the configuration. A pod gets them if it requests variables without naming any.
	Defaults []intent.CPUVariable
}

// AfterOthers marks the hook, so that the engine calls it when all quotas are final.
func (CPUEnv) AfterOthers() {}

// CPUEnvOptions tunes the hook that sets environment variables with a container's CPUs, if the
// pod requests them (trimtab.io/cpu-env).
type CPUEnvOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled" default:"true"`
	// Variables are the variables for pods with trimtab.io/cpu-env: "true". NAME=list
	// is the list of the CPUs that a container owns; a container that owns no CPUs does
	// not get this variable. NAME=count, or NAME, is the number of CPUs that it can use.
	Variables []string `json:"variables" default:"TRIMTAB_CPUS=list,TRIMTAB_CPU_COUNT=count" check:"variables"`
}

// Make makes the hook for a node.
func (o CPUEnvOptions) Make(_ Node, _ *Options) (Hook, error) {
	h := CPUEnv{Defaults: make([]intent.CPUVariable, len(o.Variables))}
	for i, text := range o.Variables {
		v, err := intent.ParseCPUVariable(text)
		if err != nil {
			return nil, fmt.Errorf("hooks.cpuEnv.variables: %w", err)
		}
		h.Defaults[i] = v
	}
	return h, nil
}

// Info describes the hook.
func (CPUEnv) Info() Info {
	return Info{
		Name:    "cpuEnv",
		About:   "environment variables with the CPUs that a container owns and the number that it can use, for programs that size thread pools",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.TrimtabCPUEnv},
		Sets:    []lifecycle.Field{lifecycle.Env},
		Compose: "runs after all other hooks; a variable that the container or another hook sets is not changed",
		Differs: []string{
			"a count is the number of CPUs that the container may run on. If the quota of the container or its pod allows fewer CPUs, the count is the quota in CPUs, rounded up",
			"lists are given only to containers that own CPUs, because the CPUs of a pool change while its containers run",
			"variables cannot change after the creation of a container: a later resize of the container or its pool does not change them",
			"over NRI, the agent knows the variables that an image sets, and does not change them. Requests of the CRI and of hook servers have only the variables of the pod's spec, so the hook overrides an image's variable there",
		},
	}
}

// Propose gives a container its variables.
func (h CPUEnv) Propose(in *Input, out *Output) {
	ask := in.Intent.CPUEnv
	if in.Container == "" || !ask.IsSet() {
		return
	}
	if in.Creation == nil {
		for _, name := range slices.Sorted(maps.Keys(in.CPUEnv)) {
			out.setEnv(name, in.CPUEnv[name], lifecycle.Reason{Hook: "cpuEnv", Source: ask.Key, Text: "unchanged since the container was created"})
		}
		return
	}
	wanted := ask.V.Variables
	if ask.V.Defaults {
		wanted = h.Defaults
	}
	count, by := in.usableCPUs(out.Values)
	for _, v := range wanted {
		value, text := in.Creation.OwnedCPUs, "the CPUs that the container owns"
		if !v.List {
			value, text = strconv.Itoa(count), by
		}
		if value == "" || in.Creation.hasEnv(v.Name) || out.hasProposal(lifecycle.Env, v.Name) {
			continue
		}
		out.setEnv(v.Name, value, lifecycle.Reason{Hook: "cpuEnv", Source: ask.Key, Text: text})
		if out.CPUEnv == nil {
			out.CPUEnv = map[string]string{}
		}
		out.CPUEnv[v.Name] = value
	}
}

// usableCPUs returns the number of CPUs that a container can use at the same time. The result by describes what limits
// the number.
func (in *Input) usableCPUs(decided []lifecycle.Value) (count int, by string) {
	count, by = in.Creation.CPUs, "the number of CPUs that the container may run on"
	if in.Creation.OwnedCPUs != "" {
		by = "the number of CPUs that the container owns"
	}
	for _, limit := range []struct {
		of     string
		values []lifecycle.Value
		asked  *lifecycle.Resources
	}{{"container", decided, in.Pristine}, {"pod", in.Creation.PodValues, in.Pod.Resources}} {
		if n := quotaCPUs(limit.values, limit.asked); n > 0 && n < count {
			count, by = n, fmt.Sprintf("the quota of the %s as a number of CPUs; the container may run on %d CPUs", limit.of, in.Creation.CPUs)
		}
	}
	return count, by
}

// quotaCPUs returns a quota in whole CPUs, rounded up; 0 for no quota. If the values in decided have a quota, it
// counts. Otherwise the quota in asked counts.
func quotaCPUs(decided []lifecycle.Value, asked *lifecycle.Resources) int {
	quota, per := int64(0), periodOf(asked)
	if asked != nil {
		quota = asked.CPU.Quota.V
	}
	for i := range decided {
		switch decided[i].Field {
		case lifecycle.CPUQuota:
			quota = decided[i].Int
		case lifecycle.CPUPeriod:
			per = cmp.Or(decided[i].Int, per)
		}
	}
	if quota <= 0 {
		return 0
	}
	return int((quota-1)/per + 1)
}

// hasEnv reports whether the runtime's request for the container already has an environment variable with this name.
func (c *Creation) hasEnv(name string) bool {
	return slices.ContainsFunc(c.Env, func(e string) bool {
		has, _, _ := strings.Cut(e, "=")
		return has == name
	})
}

// setEnv proposes an environment variable.
func (o *Output) setEnv(name, value string, why lifecycle.Reason) {
	o.Values = append(o.Values, lifecycle.Value{Field: lifecycle.Env, Key: name, Text: value, Why: why})
}
