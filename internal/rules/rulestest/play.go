package rulestest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/jsonwords"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/podspec"
	"github.com/trimtab/trimtab/internal/rules"
	"github.com/trimtab/trimtab/internal/topology"
)

// outcome is the effect of rules on a container.
type outcome struct {
	matched           []string          // the names of the rules that match
	set, setPod       map[string]string // the values of the container and of its pod, by field and key
	class, pool, numa string            // what the pod requests after all rules
	refusal           string            // the reason why the container is refused; "" if it is not refused
	problems          []string          // the reasons of the reported problems
}

// subject is the pod and the container of a case.
type subject struct {
	pod       *lifecycle.Pod
	spec      *lifecycle.PodSpec
	container lifecycle.ContainerSpec
	image     string
}

// subject reads the pod of a case, and finds the case's container in the pod.
func (c *Case) subject() (s subject, err error) {
	var raw map[string]any
	if err := json.Unmarshal(c.Pod, &raw); err != nil || raw == nil {
		return s, errors.New("pod: want a Pod in the form that 'kubectl get pod -o yaml' prints")
	}
	for key, usual := range map[string]string{"apiVersion": "v1", "kind": "Pod"} {
		if raw[key] == nil {
			raw[key] = usual
		}
	}
	text, err := yaml.Marshal(raw)
	if err != nil {
		return s, fmt.Errorf("pod: %w", err)
	}
	all, passed, err := podspec.Manifests(text)
	switch {
	case err != nil:
		return s, fmt.Errorf("pod: %w", err)
	case len(all) != 1 || len(passed) > 0:
		return s, errors.New("pod: want exactly one Pod")
	}
	m := all[0]
	total := podspec.PodResources(m.Spec)
	s.spec, s.pod = m.Spec, &lifecycle.Pod{
		ID: "tested", Name: m.Spec.Name, Namespace: m.Spec.Namespace, UID: m.Spec.UID, Labels: m.Labels, Annotations: m.Annotations,
		CgroupParent: cgroupOf(m.Spec.QoS), Resources: &total,
	}
	return s, s.chooseContainer(c, text)
}

// chooseContainer finds the container of a case. It also reads two facts from the manifest that s.spec lacks: the
// RuntimeClass of the pod, and the image of the container.
func (s *subject) chooseContainer(c *Case, manifest []byte) error {
	var more struct {
		Spec struct {
			RuntimeClassName string
			InitContainers   []struct{ Name, Image string }
			Containers       []struct{ Name, Image string }
		}
	}
	if err := yaml.Unmarshal(manifest, &more); err != nil {
		return fmt.Errorf("pod: %w", jsonwords.Error(err))
	}
	s.pod.RuntimeHandler = more.Spec.RuntimeClassName
	name := c.Container
	if name == "" {
		if len(more.Spec.Containers) != 1 {
			return fmt.Errorf("container: the pod has %d containers: name one of them", len(more.Spec.Containers))
		}
		name = more.Spec.Containers[0].Name
	}
	found, ok := s.spec.Container(name)
	if !ok {
		return fmt.Errorf("container: the pod has no container named %q", name)
	}
	s.container = found
	for _, k := range append(more.Spec.InitContainers, more.Spec.Containers...) {
		if k.Name == name {
			s.image = k.Image
		}
	}
	return nil
}

// cgroupOf returns a cgroup path for a pod with the given QoS class. The agent reads the QoS class from this path.
func cgroupOf(qos string) string {
	if qos == "Guaranteed" {
		return "/kubepods/podtested"
	}
	return "/kubepods/" + strings.ToLower(qos) + "/podtested"
}

// simulate makes the agent's decisions for the creation of the pod and then of the container, on a node without other
// pods.
func simulate(state *engine.State, s subject) outcome {
	o := outcome{set: map[string]string{}, setPod: map[string]string{}}
	matched := map[string]bool{}
	decide := func(ev lifecycle.Event) *engine.Plan {
		plan := engine.Decide(state, &ev, engine.Facts{Specs: map[string]*lifecycle.PodSpec{s.pod.UID: s.spec}})
		for name := range plan.ConditionMatches {
			matched[name] = true
		}
		state.Commit(plan)
		return plan
	}
	decide(lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: s.pod})
	created := decide(lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: s.pod, Container: &lifecycle.Container{
		ID: "tested-container", PodID: s.pod.ID, Name: s.container.Name, State: lifecycle.StateCreated,
		Image: &lifecycle.Image{Name: s.image}, Resources: s.container.Resources(),
	}})
	o.refusal = created.Reject
	for _, h := range state.Policy.Hooks {
		if name := h.Info().Name; matched[name] {
			o.matched = append(o.matched, strings.TrimPrefix(name, rules.Prefix))
		}
	}
	pod := state.Pod(s.pod.ID)
	addValues(o.setPod, pod.Values)
	o.addProblems(pod.Intent.Problems, pod.ProblemSummary.Problems)
	if c := created.Container; c != nil {
		if o.refusal == "" {
			addValues(o.set, state.Values(c))
		}
		o.addProblems(c.ProblemSummary.Problems)
	}
	o.class, o.pool = pod.Intent.Class.V.String(), pod.Intent.Pool.V
	if pod.Intent.NUMA.IsSet() {
		o.numa = numaText(pod.Intent.NUMA.V)
	}
	return o
}

// numaText describes a binding to NUMA nodes with the names of the keys that a rule has for it.
func numaText(b intent.NUMABinding) string {
	words := []string{"bind"}
	if b.Count > 0 {
		words = append(words, fmt.Sprintf("count=%d", b.Count))
	}
	if len(b.IDs) > 0 {
		words = append(words, "nodes="+topology.FormatList(b.IDs))
	}
	for _, flag := range []struct {
		name string
		on   bool
	}{{"exclusive", b.Exclusive}, {"even", b.Even}, {"wholeCores", b.WholeCores}, {"bySocket", b.BySocket}, {"alone", b.ExcludeOthers}} {
		if flag.on {
			words = append(words, flag.name)
		}
	}
	return strings.Join(words, " ")
}

// addValues adds values to a set, by field and key.
func addValues(set map[string]string, values []lifecycle.Value) {
	for _, v := range values {
		set[v.Setting()] = v.String()
	}
}

// addProblems adds the reasons of problems to the outcome.
func (o *outcome) addProblems(lists ...[]lifecycle.Problem) {
	for _, p := range slices.Concat(lists...) {
		o.problems = append(o.problems, p.Reason)
	}
}
