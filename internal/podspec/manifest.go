package podspec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/trimtab/trimtab/internal/jsonwords"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Manifest is a pod from a YAML or JSON document, with the defaults that the API server and the kubelet would add.
type Manifest struct {
	Spec                *lifecycle.PodSpec
	Labels, Annotations map[string]string
	// Env has, by the name of the container, the variables that the manifest itself sets, as NAME=value. It has no values
	// from other objects, such as ConfigMaps.
	Env map[string][]string
}

// manifest has the fields of a pod, a workload or a list that the agent reads.
type manifest struct {
	Kind     string            `json:"kind"`
	Metadata v1Metadata        `json:"metadata"`
	Spec     json.RawMessage   `json:"spec"`
	Items    []json.RawMessage `json:"items"`
}

// Manifests reads YAML or JSON documents: pods, lists of pods, and workloads (Deployment, StatefulSet, DaemonSet,
// ReplicaSet, ReplicationController, Job, CronJob). For each workload it returns one pod. As in the API server, missing
// requests default to the limits, and the QoS class follows from requests and limits.
//
// Manifests skips objects of other kinds. skipped has the number of skipped objects of each kind, such as "2 Service".
// An error about a document has the number of this document.
func Manifests(text []byte) (all []Manifest, skipped []string, err error) {
	others := map[string]int{}
	d := yamlv3.NewDecoder(bytes.NewReader(text))
	for n := 1; ; n++ {
		var doc any
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && doc == nil {
			continue // between two separators
		}
		var some []Manifest
		if err == nil {
			some, err = fromDocument(doc, others)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("document %d: %w", n, err)
		}
		all = append(all, some...)
	}
	for _, kind := range slices.Sorted(maps.Keys(others)) {
		skipped = append(skipped, fmt.Sprintf("%d %s", others[kind], kind))
	}
	switch {
	case len(all) == 0 && len(skipped) > 0:
		return nil, nil, fmt.Errorf("the manifest has no pod or workload, only %s; name a file with a pod", strings.Join(skipped, ", "))
	case len(all) == 0:
		return nil, nil, errors.New("the manifest has no pod; name a file with a pod")
	case len(all) > maxPods:
		return nil, nil, fmt.Errorf("the manifest has more than %d pods", maxPods)
	}
	return all, skipped, nil
}

// fromDocument reads one YAML document. The map others counts objects without pods, by kind.
func fromDocument(doc any, others map[string]int) ([]Manifest, error) {
	object, err := withTextKeys(doc)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return fromJSON(raw, others)
}

// withTextKeys returns a decoded YAML value in which all keys are strings, as in JSON. In YAML, keys may be numbers or
// booleans.
func withTextKeys(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			if v[key], err = withTextKeys(inner); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, inner := range v {
			if v[i], err = withTextKeys(inner); err != nil {
				return nil, err
			}
		}
	case map[any]any:
		out := make(map[string]any, len(v))
		for key, inner := range v {
			switch key.(type) {
			case string, int, int64, uint64, float64, bool:
			default:
				return nil, fmt.Errorf("a key has the type %T; it must be a text, a number or a boolean", key)
			}
			if out[fmt.Sprint(key)], err = withTextKeys(inner); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v, nil
}

// fromJSON reads one object. If the object has no pods, fromJSON counts it in the map others.
func fromJSON(raw []byte, others map[string]int) ([]Manifest, error) {
	var m manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, jsonwords.Error(err)
	}
	switch m.Kind {
	case "Pod":
		p, err := m.pod(m.Metadata, m.Spec)
		return []Manifest{p}, err
	case "List", "PodList":
		var all []Manifest
		for i, item := range m.Items {
			some, err := fromJSON(item, others)
			if err != nil {
				return nil, fmt.Errorf("item %d: %w", i+1, err)
			}
			all = append(all, some...)
		}
		return all, nil
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job":
		return m.template(m.Spec)
	case "CronJob":
		var spec struct {
			JobTemplate struct {
				Spec json.RawMessage `json:"spec"`
			} `json:"jobTemplate"`
		}
		if err := json.Unmarshal(m.Spec, &spec); err != nil {
			return nil, jsonwords.Error(err)
		}
		return m.template(spec.JobTemplate.Spec)
	case "":
		return nil, errors.New("the object has no kind; it must be a pod, a workload or a list of these")
	}
	others[fmt.Sprintf("%.60s", m.Kind)]++
	return nil, nil
}

// template returns the pod of a workload. The pod has the name of the workload. The parameter workload is the JSON of
// the spec of the workload.
func (m *manifest) template(workload json.RawMessage) ([]Manifest, error) {
	var spec struct {
		Template struct {
			Metadata v1Metadata      `json:"metadata"`
			Spec     json.RawMessage `json:"spec"`
		} `json:"template"`
	}
	if err := json.Unmarshal(workload, &spec); err != nil {
		return nil, jsonwords.Error(err)
	}
	meta := spec.Template.Metadata
	meta.Name, meta.Namespace = m.Metadata.Name, m.Metadata.Namespace
	p, err := m.pod(meta, spec.Template.Spec)
	return []Manifest{p}, err
}

// pod converts one pod. spec is the JSON of the v1.PodSpec of the pod.
func (m *manifest) pod(meta v1Metadata, spec json.RawMessage) (Manifest, error) {
	meta.Namespace = cmp.Or(meta.Namespace, "default")
	name := meta.Namespace + "/" + meta.Name
	var p v1Pod
	if len(spec) == 0 {
		return Manifest{}, fmt.Errorf("pod %s has no spec", name)
	}
	if err := json.Unmarshal(spec, &p.Spec); err != nil {
		return Manifest{}, fmt.Errorf("pod %s: %w", name, jsonwords.Error(err))
	}
	p.Metadata = meta
	p.Metadata.UID = "planned-" + meta.Namespace + "-" + meta.Name
	s, err := p.spec(lifecycle.FromKubelet)
	if err != nil {
		return Manifest{}, fmt.Errorf("pod %s: %w", name, err)
	}
	for i := range s.Containers {
		s.Containers[i].Requests = defaultedRequests(s.Containers[i])
	}
	s.QoS = qosClass(s.Containers)
	env, err := environments(spec)
	if err != nil {
		return Manifest{}, fmt.Errorf("pod %s: %w", name, err)
	}
	return Manifest{Spec: s, Labels: meta.Labels, Annotations: meta.Annotations, Env: env}, nil
}

// defaultedRequests returns a container's requests, with the limits in place of missing requests
// (pkg/apis/core/v1/defaults.go, SetDefaults_Pod, Kubernetes 1.36).
func defaultedRequests(c lifecycle.ContainerSpec) lifecycle.Amounts {
	if len(c.Limits) == 0 {
		return c.Requests
	}
	all := maps.Clone(c.Limits)
	maps.Copy(all, c.Requests)
	return all
}

// qosClass returns the QoS class of a pod with these containers (pkg/apis/core/v1/helper/qos, ComputePodQOS, Kubernetes
// 1.36). It does not use the resources of the pod as a whole.
func qosClass(containers []lifecycle.ContainerSpec) string {
	any, all := false, true
	for _, c := range containers {
		for _, r := range []string{lifecycle.ResourceCPU, lifecycle.ResourceMemory} {
			any = any || c.Requests[r] > 0 || c.Limits[r] > 0
			all = all && c.Limits[r] > 0 && c.Requests[r] == c.Limits[r]
		}
	}
	switch {
	case !any:
		return "BestEffort"
	case all:
		return "Guaranteed"
	}
	return "Burstable"
}

// environments returns the variables that a pod spec itself sets, by the name of the container.
func environments(spec json.RawMessage) (map[string][]string, error) {
	type container struct {
		Name string `json:"name"`
		Env  []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"env"`
	}
	var s struct {
		Init []container `json:"initContainers"`
		Apps []container `json:"containers"`
	}
	if err := json.Unmarshal(spec, &s); err != nil {
		return nil, jsonwords.Error(err)
	}
	env := map[string][]string{}
	for _, c := range slices.Concat(s.Init, s.Apps) {
		for _, e := range c.Env {
			env[c.Name] = append(env[c.Name], e.Name+"="+e.Value)
		}
	}
	return env, nil
}

// PodResources returns the resources that the kubelet sets on a pod's cgroup (pkg/kubelet/cm/helpers_linux.go,
// ResourceConfigForPod, Kubernetes 1.36). If the pod as a whole has resources, PodResources returns these. Otherwise it
// returns the sums over the containers. It adds the pod's overhead in both cases.
func PodResources(p *lifecycle.PodSpec) lifecycle.Resources {
	if p.QoS == "BestEffort" {
		return lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some(uint64(2))}}
	}
	sum := lifecycle.ContainerSpec{Requests: lifecycle.Amounts{}, Limits: lifecycle.Amounts{}}
	for _, name := range []string{lifecycle.ResourceCPU, lifecycle.ResourceMemory} {
		sum.Requests[name], sum.Limits[name] = p.Request(name), p.Limit(name)
	}
	return sum.Resources()
}
