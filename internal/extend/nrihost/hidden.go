package nrihost

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hiddenObjects are the pods and containers that the host hides from CRI clients until plugins have answered. Before
// the runtime reports the id of an object, the object has only a key, which podKey or containerKey makes from the
// request.
type hiddenObjects struct {
	mu     sync.Mutex               // guards all below
	hidden map[string]*hiddenObject // by key, and also by id when the runtime has reported the id
}

// hiddenObject is one hidden pod or container.
type hiddenObject struct {
	visible chan struct{} // closed when CRI clients may see the object, or when the object is removed
}

func newHiddenObjects() *hiddenObjects { return &hiddenObjects{hidden: map[string]*hiddenObject{}} }

// podKey returns the key of a pod.
func podKey(m *cri.PodSandboxMetadata) string {
	return fmt.Sprintf("pod %s/%s/%s/%d", m.GetNamespace(), m.GetName(), m.GetUid(), m.GetAttempt())
}

// containerKey returns the key of a container, whose pod has the sandbox id pod.
func containerKey(pod string, m *cri.ContainerMetadata) string {
	return fmt.Sprintf("%s%s/%d", containerKeyPrefix(pod), m.GetName(), m.GetAttempt())
}

// containerKeyPrefix returns the prefix of the keys of all containers of a pod.
func containerKeyPrefix(pod string) string { return "container " + pod + "/" }

// hide hides the object with a key. It returns two functions: setID must be called when the runtime has reported the
// object's id, and reveal makes the object visible. The result ok is false if the object is hidden already, because a
// CRI client repeated its call.
func (v *hiddenObjects) hide(key string) (setID func(id string), reveal func(), ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.hidden[key] != nil {
		return nil, nil, false
	}
	one, keys := &hiddenObject{visible: make(chan struct{})}, []string{key}
	v.hidden[key] = one
	setID = func(id string) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.hidden[id] = one
		keys = append(keys, id)
	}
	return setID, sync.OnceFunc(func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		for _, k := range keys {
			delete(v.hidden, k)
		}
		close(one.visible)
	}), true
}

// hasHidden reports whether any object is hidden.
func (v *hiddenObjects) hasHidden() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.hidden) > 0
}

// hides reports whether one of the keys or ids belongs to a hidden object.
func (v *hiddenObjects) hides(keys ...string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(keys, func(k string) bool { return v.hidden[k] != nil })
}

// awaitVisible waits until the object with a key or id is not hidden any more, or until ctx ends.
func (v *hiddenObjects) awaitVisible(ctx context.Context, keyOrID string) {
	v.mu.Lock()
	one := v.hidden[keyOrID]
	v.mu.Unlock()
	if one == nil {
		return
	}
	select {
	case <-one.visible:
	case <-ctx.Done():
	}
}

// awaitContainers waits for the containers of a pod that are hidden at the time of the call. It returns when none of
// them is hidden any more, or when ctx ends.
func (v *hiddenObjects) awaitContainers(ctx context.Context, pod string) {
	v.mu.Lock()
	var keys []string
	for k := range v.hidden {
		if strings.HasPrefix(k, containerKeyPrefix(pod)) {
			keys = append(keys, k)
		}
	}
	v.mu.Unlock()
	for _, k := range keys {
		v.awaitVisible(ctx, k)
	}
}

// unknownIDRequest is an encoded request with an id that no runtime assigns. The host forwards it in place of a request
// about a hidden object, so that the runtime answers that the object does not exist. It fits all methods in
// requestObjectIDs, because the id is always in field 1.
var unknownIDRequest = mustEncode(proto.Marshal(&cri.ContainerStatusRequest{ContainerId: "hidden-until-nri-plugins-have-answered"}))

// mustEncode returns the result of proto.Marshal, and panics at an error.
func mustEncode(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// requestObjectIDs has the CRI methods about one pod or container that the host forwards without asking plugins. For
// each method there is a function, which returns the id of the pod or container in an encoded request.
var requestObjectIDs = map[string]func([]byte) string{
	"PodSandboxStatus": firstStringField, "ContainerStatus": firstStringField, "ContainerStats": firstStringField, "PodSandboxStats": firstStringField,
	"ExecSync": firstStringField, "Exec": firstStringField, "Attach": firstStringField, "PortForward": firstStringField, "ReopenContainerLog": firstStringField, "CheckpointContainer": firstStringField,
}

// firstStringField returns the text in field 1 of a message.
func firstStringField(b []byte) string {
	req := &cri.ContainerStatusRequest{} // decodes field 1, and keeps all other fields as unknown fields
	if proto.Unmarshal(b, req) != nil {
		return ""
	}
	return req.GetContainerId()
}

// answerFilters has the CRI methods that list pods or containers or stream events about them. For each method there is
// a function that gets an encoded answer. If the answer is a list, the function returns the list without hidden
// objects. If the answer is an event about a hidden object, the function waits until the object is visible. It returns
// nil if the event must be dropped.
var answerFilters = map[string]func(*Host, []byte) []byte{
	"ListPodSandbox": newAnswerFilter(func(v *hiddenObjects, r *cri.ListPodSandboxResponse) {
		r.Items = slices.DeleteFunc(r.Items, func(p *cri.PodSandbox) bool { return v.hides(p.GetId(), podKey(p.GetMetadata())) })
	}),
	"StreamPodSandboxes": newAnswerFilter(func(v *hiddenObjects, r *cri.ListPodSandboxResponse) {
		r.Items = slices.DeleteFunc(r.Items, func(p *cri.PodSandbox) bool { return v.hides(p.GetId(), podKey(p.GetMetadata())) })
	}),
	"ListContainers": newAnswerFilter(func(v *hiddenObjects, r *cri.ListContainersResponse) {
		r.Containers = slices.DeleteFunc(r.Containers, func(c *cri.Container) bool {
			return v.hides(c.GetId(), containerKey(c.GetPodSandboxId(), c.GetMetadata()))
		})
	}),
	"StreamContainers": newAnswerFilter(func(v *hiddenObjects, r *cri.ListContainersResponse) {
		r.Containers = slices.DeleteFunc(r.Containers, func(c *cri.Container) bool {
			return v.hides(c.GetId(), containerKey(c.GetPodSandboxId(), c.GetMetadata()))
		})
	}),
	"ListContainerStats":    newAnswerFilter(hideContainerStats),
	"StreamContainerStats":  newAnswerFilter(hideContainerStats),
	"ListPodSandboxStats":   newAnswerFilter(hidePodStats),
	"StreamPodSandboxStats": newAnswerFilter(hidePodStats),
	"GetContainerEvents":    delayEvent,
}

// hideContainerStats removes the entries of hidden containers from an answer.
func hideContainerStats(v *hiddenObjects, r *cri.ListContainerStatsResponse) {
	r.Stats = slices.DeleteFunc(r.Stats, func(s *cri.ContainerStats) bool { return v.hides(s.GetAttributes().GetId()) })
}

// hidePodStats removes the entries of hidden pods from an answer.
func hidePodStats(v *hiddenObjects, r *cri.ListPodSandboxStatsResponse) {
	r.Stats = slices.DeleteFunc(r.Stats, func(s *cri.PodSandboxStats) bool {
		return v.hides(s.GetAttributes().GetId(), podKey(s.GetAttributes().GetMetadata()))
	})
}

// newAnswerFilter returns a function for answerFilters. That function decodes an answer, lets the function hide remove
// the hidden objects, and encodes the result.
func newAnswerFilter[A any, P interface {
	*A
	proto.Message
}](hide func(v *hiddenObjects, a P)) func(*Host, []byte) []byte {
	return func(h *Host, b []byte) []byte {
		a := P(new(A))
		if proto.Unmarshal(b, a) != nil {
			return b
		}
		hide(h.hidden, a)
		out, err := proto.Marshal(a)
		if err != nil {
			return b
		}
		return out
	}
}

// delayEvent delays a runtime event until the event's pod and container are visible. Later events of the stream also
// wait, so that the order of events does not change. If the pod or container is removed before it becomes visible,
// delayEvent returns nil, and the caller drops the event.
func delayEvent(h *Host, b []byte) []byte {
	e := &cri.ContainerEventResponse{}
	if proto.Unmarshal(b, e) != nil {
		return b
	}
	pod := e.GetPodSandboxStatus()
	keys := []string{e.GetContainerId(), podKey(pod.GetMetadata())}
	for _, c := range e.GetContainersStatuses() {
		if c.GetId() == e.GetContainerId() {
			keys = append(keys, containerKey(pod.GetId(), c.GetMetadata()))
		}
	}
	hidden := h.hidden.hides(keys...)
	ctx, cancel := context.WithTimeout(context.Background(), followUpTimeout)
	defer cancel()
	for _, k := range keys {
		h.hidden.awaitVisible(ctx, k)
	}
	if hidden && !h.objects.contains(e.GetContainerId()) {
		return nil
	}
	e.ContainersStatuses = slices.DeleteFunc(e.ContainersStatuses, func(c *cri.ContainerStatus) bool {
		return h.hidden.hides(c.GetId(), containerKey(pod.GetId(), c.GetMetadata()))
	})
	out, err := proto.Marshal(e)
	if err != nil {
		return b
	}
	return out
}
