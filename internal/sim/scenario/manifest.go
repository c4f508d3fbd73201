package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/internal/jsonwords"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/podspec"
)

// expandManifests converts the manifests of all steps to pods and containers.
func (s *Scenario) expandManifests() error {
	var errs []error
	for i := range s.Steps {
		for j := range s.Steps[i].Run {
			if err := s.Steps[i].Run[j].expandManifest(); err != nil {
				errs = append(errs, fmt.Errorf("steps[%d].run[%d].manifest: %w", i, j, err))
			}
		}
	}
	return errors.Join(errs...)
}

// expandManifest sets the pod and the containers from the manifest. It converts the manifest in the same way as the API
// server and the kubelet. It leaves out init containers, because a step with Run does not wait for the end of a
// container before it starts the next container.
func (r *Run) expandManifest() error {
	if len(r.Manifest) == 0 {
		return nil
	}
	if r.Pod.Name != "" || len(r.Containers) > 0 {
		return errors.New("pod and containers come from the manifest: leave them out")
	}
	all, passed, err := podspec.Manifests(r.Manifest)
	if err != nil {
		return err
	}
	if len(all) != 1 || len(passed) > 0 {
		return errors.New("the manifest must be exactly one Pod")
	}
	m := all[0]
	spec, err := kubeletSpec(r.Manifest)
	if err != nil {
		return err
	}
	r.Pod = Pod{
		Namespace: m.Spec.Namespace, Name: m.Spec.Name, QoS: m.Spec.QoS, Labels: m.Labels, Annotations: m.Annotations, Spec: spec,
	}
	sum := resourcesOf(podspec.PodResources(m.Spec))
	r.Pod.Resources = &sum
	for _, c := range m.Spec.Containers {
		if c.Kind != lifecycle.App && c.Kind != lifecycle.Sidecar {
			continue
		}
		out := Container{Name: c.Name, Resources: resourcesOf(c.Resources())}
		for _, pair := range m.Env[c.Name] {
			if out.Env == nil {
				out.Env = map[string]string{}
			}
			name, value, _ := strings.Cut(pair, "=")
			out.Env[name] = value
		}
		r.Containers = append(r.Containers, out)
	}
	return nil
}

// resourcesOf converts resources to the type that scenarios use.
func resourcesOf(r lifecycle.Resources) Resources {
	return Resources{Shares: pointerOrNil(r.CPU.Shares), Quota: pointerOrNil(r.CPU.Quota), Period: pointerOrNil(r.CPU.Period), Memory: pointerOrNil(r.Memory.Limit)}
}

// pointerOrNil returns a pointer to a value; nil if the value is absent.
func pointerOrNil[T comparable](o lifecycle.Opt[T]) *T {
	if !o.Set {
		return nil
	}
	return &o.V
}

// kubeletSpec returns the spec of a Pod as the kubelet reports it. Missing requests get the values of the limits
// (pkg/apis/core/v1/defaults.go, SetDefaults_Pod, Kubernetes 1.36).
func kubeletSpec(manifest json.RawMessage) (json.RawMessage, error) {
	var pod struct {
		Kind string         `json:"kind"`
		Spec map[string]any `json:"spec"`
	}
	if err := json.Unmarshal(manifest, &pod); err != nil {
		return nil, jsonwords.Error(err)
	}
	if pod.Kind != "Pod" {
		return nil, fmt.Errorf("the manifest has kind %q, want Pod", pod.Kind)
	}
	for _, list := range []string{"initContainers", "containers"} {
		containers, _ := pod.Spec[list].([]any)
		for _, c := range containers {
			if c, ok := c.(map[string]any); ok {
				defaultRequests(c)
			}
		}
	}
	return json.Marshal(pod.Spec)
}

// defaultRequests sets the missing requests of a container to the values of its limits.
func defaultRequests(container map[string]any) {
	resources, _ := container["resources"].(map[string]any)
	limits, _ := resources["limits"].(map[string]any)
	if len(limits) == 0 {
		return
	}
	requests, _ := resources["requests"].(map[string]any)
	if requests == nil {
		requests = map[string]any{}
		resources["requests"] = requests
	}
	for name, limit := range limits {
		if _, set := requests[name]; !set {
			requests[name] = limit
		}
	}
}
