package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/podspec"
	"github.com/trimtab/trimtab/internal/report/api"
)

// PlanPods returns the decisions that the agent would make about the pods in manifests.
func (s source) PlanPods(manifests []byte) (api.Plan, error) {
	all, passed, err := podspec.Manifests(manifests)
	if err != nil {
		return api.Plan{}, err
	}
	wishes := podsOfManifests(all)
	for i := range wishes {
		if wishes[i].Pod.Annotations[intent.TrimtabCDIDevices] != "" {
			wishes[i].Devices = s.a.node.cdi.devices()
		}
	}
	out := nodeview.WhatIf(s.a.conductor, wishes)
	c := s.a.settings.current()
	out.Hints = slices.Concat(wholeCPUHints(c, wishes, out.Containers), sharingHints(c, out.Containers), hugePageHints(s.a.settings.currentMachine(), wishes))
	out.IgnoredObjects, out.ReleasedAt = passed, s.a.settings.releaseTime()
	return out, nil
}

// parsePlannedConfig parses a configuration file. The parameter file can also be a policy file of nri-plugins. In this
// case parsePlannedConfig returns the configuration in force, in which the policy file replaces the placement policy.
func (s source) parsePlannedConfig(file []byte) (config.Config, error) {
	const name = "the new configuration"
	if !config.IsPolicy(file) {
		return config.Parse(name, file)
	}
	c, err := config.Convert(name, file)
	return c.ApplyTo(s.a.settings.current()), err
}

// PlanConfig returns the containers whose CPUs would change if the given configuration file or policy file came into
// force.
func (s source) PlanConfig(file []byte) (api.Plan, error) {
	c, err := s.parsePlannedConfig(file)
	if err != nil {
		return api.Plan{}, err
	}
	policy, err := policyOf(c, s.a.settings.currentMachine(), s.a.node)
	if err != nil {
		return api.Plan{}, err
	}
	out := nodeview.WhatIfConfigured(s.a.conductor, policy)
	out.ReleasedAt = s.a.settings.releaseTime()
	return out, nil
}

// podsOfManifests converts manifests to the pods that a kubelet would send to the runtime.
func podsOfManifests(manifests []podspec.Manifest) []engine.PlannedPod {
	var all []engine.PlannedPod
	for i, m := range manifests {
		s := m.Spec
		s.UID = fmt.Sprintf("planned-%d", i+1) // unique, because two manifests may have the same name
		all = append(all, plannedPod(s, m.Labels, m.Annotations, m.Env))
	}
	return all
}

// plannedPod converts a pod spec to the pod that a kubelet would send to the runtime.
func plannedPod(s *lifecycle.PodSpec, labels, annotations map[string]string, env map[string][]string) engine.PlannedPod {
	parent := "/kubepods/" + strings.ToLower(s.QoS) + "/pod" + s.UID
	if s.QoS == "Guaranteed" {
		parent = "/kubepods/pod" + s.UID
	}
	sum := podspec.PodResources(s)
	w := engine.PlannedPod{Spec: s, Pod: lifecycle.Pod{
		ID: s.UID, UID: s.UID, Name: s.Name, Namespace: s.Namespace, Labels: labels, Annotations: annotations,
		CgroupParent: parent, Resources: &sum,
	}}
	for _, c := range s.Containers {
		w.Containers = append(w.Containers, lifecycle.Container{
			ID: s.UID + "-" + c.Name, PodID: s.UID, Name: c.Name, Env: env[c.Name], Resources: c.Resources(),
			CgroupsPath: parent + "/" + s.UID + "-" + c.Name,
		})
	}
	return w
}
