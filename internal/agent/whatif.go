package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/podspec"
	"github.com/trimtab/trimtab/internal/report/api"
)

// PlanPods returns what the agent would decide for pods, given as manifests.
func (s source) PlanPods(manifests []byte) (api.Plan, error) {
	all, passed, err := podspec.Manifests(manifests)
	if err != nil {
		return api.Plan{}, err
	}
	wishes := podManifests(all)
	out := nodeview.WhatIf(s.a.conductor, wishes)
	c := s.a.settings.current()
	out.Hints = slices.Concat(hints(c, wishes, out.Containers), sharingHints(c, out.Containers), pageHints(s.a.settings.hardware(), wishes))
	out.PassedOver, out.ReleasedAt = passed, s.a.settings.released()
	return out, nil
}

// planned reads a configuration file, or a policy of nri-plugins, which takes the place of the
// policy in the configuration in force.
func (s source) planned(file []byte) (config.Config, error) {
	const name = "the new configuration"
	if !config.IsPolicy(file) {
		return config.Parse(name, file)
	}
	c, err := config.Convert(name, file)
	return c.On(s.a.settings.current()), err
}

// PlanConfig returns which containers would get other CPUs with another configuration file or
// policy.
func (s source) PlanConfig(file []byte) (api.Plan, error) {
	c, err := s.planned(file)
	if err != nil {
		return api.Plan{}, err
	}
	policy, err := policyOf(c, s.a.settings.hardware(), s.a.node)
	if err != nil {
		return api.Plan{}, err
	}
	out := nodeview.WhatIfConfigured(s.a.conductor, policy)
	out.ReleasedAt = s.a.settings.released()
	return out, nil
}

// podManifests parses manifests into pods as a kubelet would send them to the runtime.
func podManifests(manifests []podspec.Manifest) []engine.PlannedPod {
	var all []engine.PlannedPod
	for i, m := range manifests {
		s := m.Spec
		s.UID = fmt.Sprintf("planned-%d", i+1) // two documents may have the same name
		all = append(all, planned(s, m.Labels, m.Annotations, m.Env))
	}
	return all
}

// planned returns a pod as a kubelet would send it to the runtime.
func planned(s *lifecycle.PodSpec, labels, annotations map[string]string, env map[string][]string) engine.PlannedPod {
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
			ID: s.UID + "-" + c.Name, PodID: s.UID, Name: c.Name, Env: env[c.Name], Resources: podspec.Resources(c),
			CgroupsPath: parent + "/" + s.UID + "-" + c.Name,
		})
	}
	return w
}
