package intent

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/jsonwords"
	"github.com/trimtab/trimtab/internal/lifecycle"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// The annotations of the sample plugins of the NRI repository (0.12) that are read,
// without their scopes: each also has the forms KEY/pod and KEY/container.NAME.
const (
	NRIUlimits    = "ulimits.noderesource.dev"
	NRIOldUlimits = "ulimits.nri.containerd.io"
	NRIIOPriority = "io-priority.noderesource.dev"
	NRIScheduler  = "scheduling-policy.noderesource.dev"
	NRIMemPolicy  = "memory-policy.noderesource.dev"
	NRISysctl     = "sysctl.noderesource.dev"
	NRIDevices    = "devices.noderesource.dev"
	NRIMounts     = "mounts.noderesource.dev"
	NRICDI        = "cdi-devices.noderesource.dev"
	NRINetDevices = "network-devices.noderesource.dev"
	NRIPodNetwork = "netdevice.noderesource.dev" // no form for one container
	NRICgroups    = "writable-cgroups.noderesource.dev"
	NRIClosID     = "closid.rdt.noderesource.dev"
	NRISchemata   = "schemata.rdt.noderesource.dev"
	NRIMonitoring = "enablemonitoring.rdt.noderesource.dev"

	nriOldIOPriority = "io-priority.nri.io"
	nriOldScheduler  = "scheduling-policy.nri.io"
	nriOldMemPolicy  = "memory-policy.nri.io"
	nriOldDevices    = "devices.nri.io"
	nriOldMounts     = "mounts.nri.io"
	nriOldCDI        = "cdi-devices.nri.io"
	nriOldNetDevices = "network-devices.nri.io"
	nriOldPodNetwork = "netdevices.nri.containerd.io"
)

// PerContainer is a request by annotations with scopes: the request of a container's own
// annotation, or else of the pod's annotation.
type PerContainer[T any] struct {
	// Own has the requests of single containers by name. A container whose annotation is
	// malformed has an entry without a key.
	Own map[string]Sourced[T]
	Pod Sourced[T]
}

// Of returns the request for a container.
func (p PerContainer[T]) Of(container string) Sourced[T] {
	if own, has := p.Own[container]; has {
		return own
	}
	return p.Pod
}

// scopes are the containers that annotations name, by the annotation's name without
// its scope.
type scopes map[string][]string

// scoped finds the annotations of single containers. If there are more than
// maxScanned annotations, it finds none and reports that.
func (t *texts) scoped(out *Pod) scopes {
	found := scopes{}
	if n := len(t.annotations.created); n > maxScanned {
		out.warn("", "", "the pod has %d annotations; the agent reads those of NRI plugins for single containers only if there are at most %d", n, maxScanned)
		return found
	}
	for key := range t.annotations.created {
		name, scope, _ := strings.Cut(key, "/")
		if container, is := strings.CutPrefix(scope, "container."); is && container != "" && nriRead[name] {
			found[name] = append(found[name], container)
		}
	}
	for _, containers := range found {
		slices.Sort(containers)
	}
	return found
}

// containers returns the containers for which one of the names has an annotation, in order.
func (s scopes) containers(names ...string) []string {
	var all []string
	for _, name := range names {
		all = append(all, s[name]...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// firstOf returns the first of the keys that the pod has.
func (t *texts) firstOf(keys ...string) string {
	for _, key := range keys {
		if t.annotations.of(key) != "" {
			return key
		}
	}
	return ""
}

// suffixed are names with a scope.
func suffixed(names []string, scope string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = name + scope
	}
	return out
}

// readScoped reads one request in all its scopes. names are the names of the annotation, the
// newest first. The order is that of NRI's device injector: a container's scope counts before
// the pod's, and within a scope the newer name counts first. A malformed text counts as an empty
// request: no other scope replaces it.
func readScoped[T any](t *texts, s scopes, out *Pod, read func(key string) (T, error), names ...string) (all Sourced[PerContainer[T]]) {
	one := func(key string) (said Sourced[T]) {
		v, err := read(key)
		if err != nil {
			out.problem(key, t.annotations.of(key), "%v", err)
			return said
		}
		if all.Key == "" {
			all.Key = key
		}
		return Sourced[T]{v, key}
	}
	for _, container := range s.containers(names...) {
		if key := t.firstOf(suffixed(names, "/container."+container)...); key != "" {
			if all.V.Own == nil {
				all.V.Own = map[string]Sourced[T]{}
			}
			all.V.Own[container] = one(key)
		}
	}
	if key := t.firstOf(append(suffixed(names, "/pod"), names...)...); key != "" {
		all.V.Pod = one(key)
	}
	return all
}

// readPod reads a request of the whole pod, in the order of readScoped.
func readPod[T any](t *texts, out *Pod, read func(key string) (T, error), names ...string) (said Sourced[T]) {
	key := t.firstOf(append(suffixed(names, "/pod"), names...)...)
	if key == "" {
		return said
	}
	v, err := read(key)
	if err != nil {
		out.problem(key, t.annotations.of(key), "%v", err)
		return said
	}
	return Sourced[T]{v, key}
}

// maxYAML limits the bytes that are read as YAML from one pod, because YAML takes more time than
// JSON. maxMarks limits the characters in it that may begin a value.
const maxYAML, maxMarks = 2 << 10, 200

// maxStrict is how many members of one text are named that nobody knows, or that come twice.
const maxStrict = 4

// structured reads an annotation that is YAML, JSON included: case-sensitive, no key twice, none
// that is unknown, no anchors. A returned error becomes a problem of the pod.
func (t *texts) structured(key string, into any) error {
	text := t.annotation(key)
	if text == "" {
		return errors.New("the agent does not read it, because it exceeds the limits for one pod")
	}
	if !json.Valid([]byte(text)) {
		var err error
		if text, err = t.fromYAML(text); err != nil {
			return err
		}
	}
	values, member := shape(text)
	switch {
	case values > t.values:
		return errors.New("too many values of one pod")
	case member > maxMember:
		return errors.New("malformed: a name is too long")
	}
	t.values -= values
	strict, err := kjson.UnmarshalStrict([]byte(text), into)
	strict = strict[:min(len(strict), maxStrict)] // a text of all would cost more than it helps
	if err = errors.Join(append(strict, err)...); err != nil {
		return errors.New("malformed: " + oneLine(jsonwords.Error(err)))
	}
	return nil
}

func (t *texts) fromYAML(text string) (string, error) {
	switch {
	case len(text) > t.yaml:
		return "", fmt.Errorf("malformed JSON, or too long: as YAML at most %d bytes are read of one pod", maxYAML)
	case marks(text) > t.marks:
		return "", fmt.Errorf("malformed JSON, or too many values: as YAML at most %d are read of one pod", maxMarks)
	case strings.ContainsAny(text, "&*"):
		return "", errors.New("malformed: YAML anchors are not supported")
	}
	t.yaml -= len(text)
	t.marks -= marks(text)
	b, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return "", errors.New("malformed: " + oneLine(err))
	}
	return string(b), nil
}

// marks counts the characters that may begin a value in YAML.
func marks(text string) (n int) {
	for i := range len(text) {
		if strings.IndexByte("-[{:,?", text[i]) >= 0 {
			n++
		}
	}
	return n
}

// scalar is a text that may be written as a number or a truth value.
type scalar string

// UnmarshalJSON reads a text, a number or a truth value.
func (s *scalar) UnmarshalJSON(b []byte) error {
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	switch v := v.(type) {
	case string:
		*s = scalar(v)
	case float64, bool:
		*s = scalar(b)
	default:
		return errors.New("want a text or a number")
	}
	return nil
}

func readNRI(t *texts, _ *lifecycle.PodSpec, out *Pod) {
	s := t.scoped(out)
	out.Ulimits = readScoped(t, s, out, t.ulimits, NRIUlimits, NRIOldUlimits)
	out.IOPriority = readScoped(t, s, out, t.ioPriority, NRIIOPriority, nriOldIOPriority)
	out.Scheduler = readScoped(t, s, out, t.scheduler, NRIScheduler, nriOldScheduler)
	out.MemPolicy = readScoped(t, s, out, t.memoryPolicy, NRIMemPolicy, nriOldMemPolicy)
	out.Sysctls = readScoped(t, s, out, t.sysctls, NRISysctl)
	out.DeviceNodes = readScoped(t, s, out, t.injectedDevices, NRIDevices, nriOldDevices)
	out.Mounts = readScoped(t, s, out, t.hostMounts, NRIMounts, nriOldMounts)
	out.CDIDevices = readScoped(t, s, out, t.cdiDevices, NRICDI, nriOldCDI)
	out.WritableCgroups = readScoped(t, s, out, t.truth, NRICgroups)
	out.ClosID = readScoped(t, s, out, t.closID, NRIClosID)
	out.Schemata = readScoped(t, s, out, t.schemata, NRISchemata)
	out.Monitoring = readScoped(t, s, out, t.truth, NRIMonitoring)
	out.NetDevices = readScoped(t, s, out, t.netDevices, NRINetDevices, nriOldNetDevices)
	for _, name := range []string{NRIPodNetwork, nriOldPodNetwork} {
		for _, container := range s.containers(name) {
			out.unserved(name+"/container."+container, "", "the key is not supported: %s", podNetworkOnly)
		}
	}
	out.PodInterfaces = readPod(t, out, t.podInterfaces, NRIPodNetwork, nriOldPodNetwork)
}
