package podspec

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Limits for answers of a kubelet, so that a faulty answer cannot use up the agent's memory. A kubelet runs 110 pods by
// default, and a pod's object has at most about 1.5 MiB in the API server's store.
const (
	maxPods       = 16384 // pods of an answer
	maxContainers = 4096  // containers of a pod
	maxAmounts    = 256   // resources of a container or pod
	maxName       = 1024  // bytes of a name or UID
)

// mirrorAnnotation is the annotation of a mirror pod, which is the object of a static pod in the API server. Its value
// is the UID that the kubelet and the runtime use (pkg/kubelet/types, ConfigMirrorAnnotationKey, Kubernetes 1.36).
const mirrorAnnotation = "kubernetes.io/config.mirror"

// uid returns the UID that the runtime uses for the pod. For a static pod, this is the value of mirrorAnnotation. But
// any author of pods can write this annotation. So uid accepts only a value that cannot be the UID of a pod from the
// API server: the UID of a static pod is a hash without dashes.
func (p *v1Pod) uid() string {
	if hash := p.Metadata.Annotations[mirrorAnnotation]; len(hash) == 32 && strings.Trim(hash, "0123456789abcdef") == "" {
		return hash
	}
	return p.Metadata.UID
}

// spec converts a pod, or returns an error for a pod that is not valid.
func (p *v1Pod) spec(from lifecycle.Source) (*lifecycle.PodSpec, error) {
	var wrong error
	read := func(from map[string]v1Quantity) lifecycle.Amounts {
		out, err := parseAmounts(from)
		wrong = cmp.Or(wrong, err)
		return out
	}
	s := &lifecycle.PodSpec{
		UID: p.uid(), Name: p.Metadata.Name, Namespace: p.Metadata.Namespace, Node: p.Spec.NodeName, QoS: p.Status.QoS, From: from,
		Overhead: read(p.Spec.Overhead), Requests: read(p.Spec.Resources.Requests), Limits: read(p.Spec.Resources.Limits),
		// Every source reports all labels and annotations of a pod, so HasAllKeys is true.
		Meta: &lifecycle.PodMeta{Labels: editableKeys(p.Metadata.Labels), Annotations: editableKeys(p.Metadata.Annotations), HasAllKeys: true},
	}
	add := func(kind lifecycle.ContainerKind, c v1Container) {
		s.Containers = append(s.Containers, lifecycle.ContainerSpec{
			Name: c.Name, Kind: kind, Requests: read(c.Resources.Requests), Limits: read(c.Resources.Limits),
		})
	}
	for _, c := range p.Spec.InitContainers {
		kind := lifecycle.Init
		if c.RestartPolicy == "Always" { // Kubernetes 1.29 and later
			kind = lifecycle.Sidecar
		}
		add(kind, c)
	}
	for _, c := range p.Spec.Containers {
		add(lifecycle.App, c)
	}
	for _, c := range p.Spec.EphemeralContainers {
		add(lifecycle.Ephemeral, c)
	}
	if err := cmp.Or(wrong, checkSpec(s)); err != nil {
		return nil, fmt.Errorf("pod %.80q: %w", s.Namespace+"/"+s.Name, err)
	}
	return s, nil
}

// parseAmounts converts amounts of resources: CPU to milli-CPUs, and all other resources to whole units.
func parseAmounts(from map[string]v1Quantity) (lifecycle.Amounts, error) {
	var out lifecycle.Amounts
	for name, q := range from {
		per := int64(1)
		if name == lifecycle.ResourceCPU {
			per = 1000
		}
		v, err := lifecycle.Quantity(string(q), per)
		if err != nil {
			return nil, fmt.Errorf("%.60q: %.40q %w", name, q, err)
		}
		if len(out) == maxAmounts || len(name) > maxName {
			return nil, fmt.Errorf("it has more than %d resources, or the name of a resource has more than %d bytes", maxAmounts, maxName)
		}
		if out == nil {
			out = lifecycle.Amounts{}
		}
		out[name] = v
	}
	return out, nil
}

// storedValueBytes is the length to which longer annotation values are cut. It is one byte more than the agent accepts
// in a value, so the agent also refuses the cut value as too long.
const storedValueBytes = lifecycle.MaxValueBytes + 1

// editableKeys returns those of the labels or annotations that also take effect when they are edited on a running pod.
func editableKeys(all map[string]string) map[string]string {
	var out map[string]string
	for key, text := range all {
		if lifecycle.IsEditable(key) {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = text[:min(len(text), storedValueBytes)]
		}
	}
	return out
}

// checkSpec returns an error if a name or UID in the spec is not valid, or if the pod has too many containers.
func checkSpec(s *lifecycle.PodSpec) error {
	switch {
	case s.UID == "" || s.Name == "" || s.Namespace == "":
		return errors.New("it has no name, namespace or UID")
	case len(s.UID) > maxName || len(s.Name) > maxName || len(s.Namespace) > maxName:
		return fmt.Errorf("its name, namespace or UID has more than %d bytes", maxName)
	case len(s.Containers) > maxContainers:
		return fmt.Errorf("it has more than %d containers", maxContainers)
	}
	seen := map[string]bool{}
	for _, c := range s.Containers {
		if c.Name == "" || len(c.Name) > maxName || seen[c.Name] {
			return fmt.Errorf("a container has no name, the name of another container, or a name of more than %d bytes", maxName)
		}
		seen[c.Name] = true
	}
	return nil
}

// indexByUID checks an answer that lists all pods of a node, and returns the pods by UID. node is the name of the node
// that all pods must have. If node is "", the pods may have any node, but all of them the same. If two pods have the
// same UID, indexByUID returns neither of them in out, and their UID in unread.
func indexByUID(all []*lifecycle.PodSpec, node string) (out map[string]*lifecycle.PodSpec, unread []UnreadPod, err error) {
	out = make(map[string]*lifecycle.PodSpec, len(all))
	twice := map[string]bool{}
	for _, s := range all {
		if out[s.UID] != nil {
			twice[s.UID] = true
		}
		switch {
		case s.Node == "":
		case node == "":
			node = s.Node
		case s.Node != node:
			return nil, nil, fmt.Errorf("the source has pods of node %.80q; this node is %.80q: check that podspec.kubelet.url is this node's kubelet", s.Node, node)
		}
		out[s.UID] = s
	}
	for uid := range twice {
		delete(out, uid)
		unread = append(unread, UnreadPod{uid, fmt.Errorf("two pods have the UID %.60q", uid)})
	}
	return out, unread, nil
}

// UnreadPod is a pod of an answer that cannot be read. Err is the reason. UID is "" if the UID cannot be read either.
type UnreadPod struct {
	UID string
	Err error
}

// unreadError returns an error with the number of pods that cannot be read, and the reason for the first of them. It
// returns nil if unread is empty.
func unreadError(unread []UnreadPod) error {
	switch len(unread) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("1 pod cannot be read: %w", unread[0].Err)
	}
	return fmt.Errorf("%d pods cannot be read, the first: %w", len(unread), unread[0].Err)
}
