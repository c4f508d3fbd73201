package intent

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Names of sets of memory nodes that depend on the container. Annotations and classes of the plugin memory-policy use
// them instead of a list of nodes.
const (
	AllNodes          = "all"          // all nodes with memory
	AllowedMems       = "allowed-mems" // the nodes that the container may use
	CPUPackages       = "cpu-packages" // the nodes in the packages of the container's CPUs
	CPUNodes          = "cpu-nodes"    // the nodes of the container's CPUs
	maxDistancePrefix = "max-dist:"    // and a number: the nodes with at most this distance from the container's CPUs
)

// MemoryRequest is a request for a NUMA memory policy: the name of a class of the configuration, or a policy.
type MemoryRequest struct {
	Class string // "" if the request has a policy
	lifecycle.MemoryPolicy
}

// String describes the request for users.
func (r MemoryRequest) String() string {
	if r.Class != "" {
		return r.Class
	}
	return r.Text()
}

// MaxDistance returns the N of max-dist:N, the set of nodes with at most this distance from the container's CPUs. The
// firmware defines the distances; 10 is the distance of a node from itself.
func MaxDistance(nodes string) (distance int, is bool) {
	text, is := strings.CutPrefix(nodes, maxDistancePrefix)
	if !is {
		return 0, false
	}
	distance, err := strconv.Atoi(text)
	return distance, err == nil && distance >= 0 && distance <= 255
}

// CheckMemoryPolicy checks a policy. The nodes of the policy may be a list, or the name of a set such as AllNodes. The
// returned policy has a list in normalised form.
func CheckMemoryPolicy(m lifecycle.MemoryPolicy) (lifecycle.MemoryPolicy, error) {
	_, far := MaxDistance(m.Nodes)
	switch {
	case far, m.Nodes == AllNodes, m.Nodes == AllowedMems, m.Nodes == CPUPackages, m.Nodes == CPUNodes:
		return m, checkMemoryMode(m.Mode, m.Flags, true)
	case strings.Trim(m.Nodes, "0123456789,-") != "":
		return m, fmt.Errorf("nodes: %q is not valid: use a list such as 0-3, or one of the words all, allowed-mems, cpu-packages, cpu-nodes or max-dist:N (N from 0 to 255)", printable(m.Nodes))
	}
	return checkNodeList(m)
}

// memoryRequest reads the name of a class from the key NRIMemoryPolicyClass, or a policy from other keys.
func (t *podTexts) memoryRequest(key string) (r MemoryRequest, err error) {
	if strings.HasPrefix(key, NRIMemoryPolicyClass) {
		r.Class, err = t.className(key)
		return r, err
	}
	if r.MemoryPolicy, err = t.memoryPolicyText(key); err == nil {
		r.MemoryPolicy, err = CheckMemoryPolicy(r.MemoryPolicy)
	}
	return r, err
}

// memoryRequests reads the keys of the plugin memory-policy. An empty annotation for a container cancels the request of
// its pod.
func (t *podTexts) memoryRequests(s scopes, out *Pod) Sourced[PerContainer[MemoryRequest]] {
	all := readScoped(t, s, out, t.memoryRequest, NRIMemoryPolicyText, NRIMemoryPolicyClass)
	for _, container := range s.containers(NRIMemoryPolicyText, NRIMemoryPolicyClass) {
		if _, has := all.V.ByContainer[container]; !has && all.V.Pod.IsSet() {
			if all.V.ByContainer == nil {
				all.V.ByContainer = map[string]Sourced[MemoryRequest]{}
			}
			all.V.ByContainer[container] = Sourced[MemoryRequest]{}
		}
	}
	return all
}
