package rulestest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/jsonwords"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/podspec"
	"github.com/trimtab/trimtab/internal/rules"
	"github.com/trimtab/trimtab/internal/topology"
)

// outcome is the effect of rules on a container.
type outcome struct {
	matched           []string
	set, setPod       map[string]string
	class, pool, numa string
	refused           string
	problems          []string
}

// subject is the pod and container of a case.
type subject struct {
	pod       *lifecycle.Pod
	spec      *lifecycle.PodSpec
	container lifecycle.ContainerSpec
	image     string
}

// subject reads the pod of a case.
func (c *Case) subject() (s subject, err error) {
	var raw map[string]any
	if err := json.Unmarshal(c.Pod, &raw); err != nil || raw == nil {
		return s, errors.New("pod: want a Pod, as kubectl prints it")
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
		return s, errors.New("pod: it must be one Pod")
	}
	m := all[0]
	total := podspec.PodResources(m.Spec)
	s.spec, s.pod = m.Spec, &lifecycle.Pod{
		ID: "tested", Name: m.Spec.Name, Namespace: m.Spec.Namespace, UID: m.Spec.UID, Labels: m.Labels, Annotations: m.Annotations,
		CgroupParent: cgroupOf(m.Spec.QoS), Resources: &total,
	}
	return s, s.choose(c, text)
}

// choose finds the container, and reads from the manifest what only it has about both.
func (s *subject) choose(c *Case, manifest []byte) error {
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
			return fmt.Errorf("container: the pod has %d, name one of them", len(more.Spec.Containers))
		}
		name = more.Spec.Containers[0].Name
	}
	found, ok := s.spec.Container(name)
	if !ok {
		return fmt.Errorf("container: the pod has none named %q", name)
	}
	s.container = found
	for _, k := range append(more.Spec.InitContainers, more.Spec.Containers...) {
		if k.Name == name {
			s.image = k.Image
		}
	}
	return nil
}

// cgroupOf returns a cgroup path for a pod with this QoS class, because intents read the class from the path.
func cgroupOf(qos string) string {
	if qos == "Guaranteed" {
		return "/kubepods/podtested"
	}
	return "/kubepods/" + strings.ToLower(qos) + "/podtested"
}

// play lets rules decide about a subject, in their order.
func play(hooks []hook.Hook, s subject, asked *intent.Pod) outcome {
	o := outcome{set: map[string]string{}, setPod: map[string]string{}}
	resources := podspec.Resources(s.container)
	ofPod := &hook.Input{Pod: s.pod, Intent: asked, Spec: s.spec}
	ofContainer := &hook.Input{
		Pod: s.pod, Intent: asked, Spec: s.spec, Container: s.container.Name, About: hook.About{Image: s.image}, Pristine: &resources,
	}
	matched := map[string]bool{}
	for _, h := range hooks {
		if w, ok := h.(hook.Wisher); ok {
			var out hook.Output
			w.Wish(ofPod, asked, &out)
			o.note(h, &out, matched, nil)
		}
	}
	for _, h := range hooks {
		for _, part := range []struct {
			in  *hook.Input
			set map[string]string
		}{{ofPod, o.setPod}, {ofContainer, o.set}} {
			var out hook.Output
			h.Propose(part.in, &out)
			o.note(h, &out, matched, part.set)
		}
	}
	for _, h := range hooks {
		if name := h.Info().Name; matched[name] {
			o.matched = append(o.matched, strings.TrimPrefix(name, rules.Prefix))
		}
	}
	o.class, o.pool = asked.Class.V.String(), asked.Pool.V
	if asked.NUMA.IsSet() {
		o.numa = numaText(asked.NUMA.V)
	}
	return o
}

// numaText describes a binding to NUMA nodes with the keys of rules.
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

// note adds the effect of one rule. Values that an earlier rule set stay.
func (o *outcome) note(h hook.Hook, out *hook.Output, matched map[string]bool, set map[string]string) {
	name := h.Info().Name
	matched[name] = matched[name] || out.Matched
	if o.refused == "" {
		o.refused = out.Refuse
	}
	for _, p := range out.Problems {
		o.problems = append(o.problems, p.Reason)
	}
	for _, v := range out.Values {
		earlier, has := set[v.Setting()]
		switch {
		case !has:
			set[v.Setting()] = v.String()
		case earlier != v.String():
			o.problems = append(o.problems, fmt.Sprintf("%s: its %s is %s, and an earlier rule sets %s", name, v.Setting(), v.String(), earlier))
		}
	}
}
