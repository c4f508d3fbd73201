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

// The annotations of the plugins in the NRI repository (0.12) that the agent reads. Each also has the scoped forms
// KEY/pod and KEY/container.NAME.
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
	NRIPodNetwork = "netdevice.noderesource.dev" // has no form KEY/container.NAME
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

// PerContainer is a request that annotations make for single containers (KEY/container.NAME) or for the whole pod. The
// annotation for a container has priority over the annotation for the pod.
type PerContainer[T any] struct {
	// ByContainer has the requests for single containers by name. A container with a malformed annotation has
	// an entry whose IsSet is false.
	ByContainer map[string]Sourced[T]
	Pod         Sourced[T]
}

// Of returns the request for a container.
func (p PerContainer[T]) Of(container string) Sourced[T] {
	if own, has := p.ByContainer[container]; has {
		return own
	}
	return p.Pod
}

// scopes lists containers by KEY: the pod has an annotation KEY/container.NAME for each NAME in the list.
type scopes map[string][]string

// findScopes finds the annotations for single containers. If the pod has more than maxScannedAnnotations annotations,
// findScopes returns none and reports this.
func (t *podTexts) findScopes(out *Pod) scopes {
	found := scopes{}
	if n := len(t.annotations.created); n > maxScannedAnnotations {
		out.reportWarning("", "", "the pod has %d annotations; the agent reads annotations of NRI plugins for single containers only if a pod has at most %d", n, maxScannedAnnotations)
		return found
	}
	for key := range t.annotations.created {
		name, scope, _ := strings.Cut(key, "/")
		if container, is := strings.CutPrefix(scope, "container."); is && container != "" && nriPodKeys[name] != "" {
			found[name] = append(found[name], container)
		}
	}
	for _, containers := range found {
		slices.Sort(containers)
	}
	return found
}

// containers returns the containers for which the pod has at least one of the named annotations, sorted.
func (s scopes) containers(names ...string) []string {
	var all []string
	for _, name := range names {
		all = append(all, s[name]...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// firstSetKey returns the first key of a list that the pod has as an annotation; "" if it has none of the keys.
func (t *podTexts) firstSetKey(keys ...string) string {
	for _, key := range keys {
		if t.annotations.of(key) != "" {
			return key
		}
	}
	return ""
}

// keyForContainer returns the key of a pod's annotation for one container; "" if there is none. If the pod has several
// of the named annotations for the container, the earliest name in the list counts.
func (t *podTexts) keyForContainer(container string, names []string) string {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = name + "/container." + container
	}
	return t.firstSetKey(keys...)
}

// keyForPod returns the key of a pod's annotation for all its containers; "" if there is none. It looks for the form
// KEY/pod of each name in the order of the list, and then for each name without a suffix.
func (t *podTexts) keyForPod(names []string) string {
	for _, name := range names {
		if key := nriPodKeys[name]; t.annotations.of(key) != "" {
			return key
		}
	}
	return t.firstSetKey(names...)
}

// readScoped reads one request for single containers and for the whole pod. The parameter names has the names of the
// annotation, the newest first. The priority is that of NRI's device injector: an annotation for a container comes
// before an annotation for the pod, and then a newer name before an older one. A malformed annotation counts as an
// empty request, and the agent does not use an annotation of lower priority instead.
func readScoped[T any](t *podTexts, s scopes, out *Pod, read func(key string) (T, error), names ...string) (all Sourced[PerContainer[T]]) {
	one := func(key string) (said Sourced[T]) {
		v, err := read(key)
		if err != nil {
			out.reportMalformed(key, t.annotations.of(key), "%v", err)
			return said
		}
		if all.Key == "" {
			all.Key = key
		}
		return Sourced[T]{v, key}
	}
	for _, container := range s.containers(names...) {
		if key := t.keyForContainer(container, names); key != "" {
			if all.V.ByContainer == nil {
				all.V.ByContainer = map[string]Sourced[T]{}
			}
			all.V.ByContainer[container] = one(key)
		}
	}
	if key := t.keyForPod(names); key != "" {
		all.V.Pod = one(key)
	}
	return all
}

// readPod reads a request for the whole pod. The parameter names has the names of the annotation, the newest first.
func readPod[T any](t *podTexts, out *Pod, read func(key string) (T, error), names ...string) (said Sourced[T]) {
	key := t.keyForPod(names)
	if key == "" {
		return said
	}
	v, err := read(key)
	if err != nil {
		out.reportMalformed(key, t.annotations.of(key), "%v", err)
		return said
	}
	return Sourced[T]{v, key}
}

// maxYAMLBytes limits the bytes of YAML that the agent parses for one pod, because parsing YAML takes more time than
// parsing JSON. maxIndicators limits the number of characters in this YAML that may begin a value.
const maxYAMLBytes, maxIndicators = 2 << 10, 200

// maxStrictErrors limits the unknown or duplicate members of one text that an error names.
const maxStrictErrors = 4

// decodeStrict parses an annotation as JSON or YAML. Keys are case-sensitive. Duplicate or unknown keys,
// and anchors, are errors. A returned error becomes a problem of the pod.
func (t *podTexts) decodeStrict(key string, into any) error {
	text := t.annotation(key)
	if text == "" {
		return errors.New("the agent does not read this annotation, because the labels and annotations of the pod exceed the agent's limits")
	}
	if !json.Valid([]byte(text)) {
		var err error
		if text, err = t.fromYAML(text); err != nil {
			return err
		}
	}
	values, member := measureJSON(text)
	switch {
	case values > t.values:
		return fmt.Errorf("too many values: the agent reads at most %d values from the annotations of one pod", maxValues)
	case member > maxMemberName:
		return fmt.Errorf("malformed: a member has a name longer than %d bytes", maxMemberName)
	}
	t.values -= values
	strict, err := kjson.UnmarshalStrict([]byte(text), into)
	strict = strict[:min(len(strict), maxStrictErrors)]
	if err = errors.Join(append(strict, err)...); err != nil {
		return errors.New("malformed: " + oneLine(jsonwords.Error(err)))
	}
	return nil
}

// fromYAML converts a YAML text to JSON, within the limits for YAML of one pod.
func (t *podTexts) fromYAML(text string) (string, error) {
	switch {
	case len(text) > t.yaml:
		return "", fmt.Errorf("malformed JSON, or too much YAML: the agent reads at most %d bytes of YAML from one pod", maxYAMLBytes)
	case countIndicators(text) > t.indicators:
		return "", fmt.Errorf("malformed JSON, or YAML with too many values: the agent reads at most %d YAML values from one pod", maxIndicators)
	case mayHaveAnchors(text):
		return "", errors.New("malformed: YAML anchors are not supported")
	}
	t.yaml -= len(text)
	t.indicators -= countIndicators(text)
	b, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return "", errors.New("malformed: " + oneLine(err))
	}
	return string(b), nil
}

// mayHaveAnchors reports whether a YAML text possibly has an anchor (&) or an alias (*). These characters have this
// meaning at the start of a value. Inside a value, as in "web-*", they are plain text.
func mayHaveAnchors(text string) bool {
	for i := range len(text) {
		if text[i] != '&' && text[i] != '*' {
			continue
		}
		if i == 0 || text[i-1] >= 0x80 || strings.IndexByte(" \t\r\n[{,:?!", text[i-1]) >= 0 {
			return true
		}
	}
	return false
}

// countIndicators counts the characters that may begin a value in YAML, which the YAML specification calls indicators.
func countIndicators(text string) (n int) {
	for i := range len(text) {
		if strings.IndexByte("-[{:,?", text[i]) >= 0 {
			n++
		}
	}
	return n
}

// scalar is a text that the annotation may also write as a number or a boolean.
type scalar string

// UnmarshalJSON reads a string, a number or a boolean.
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
		return errors.New("want a text, a number or a boolean")
	}
	return nil
}

// readNRI reads the annotations of the plugins in the NRI repository.
func readNRI(t *podTexts, _ *lifecycle.PodSpec, out *Pod) {
	s := t.findScopes(out)
	out.Ulimits = readScoped(t, s, out, t.ulimits, NRIUlimits, NRIOldUlimits)
	out.IOPriority = readScoped(t, s, out, t.ioPriority, NRIIOPriority, nriOldIOPriority)
	out.Scheduler = readScoped(t, s, out, t.scheduler, NRIScheduler, nriOldScheduler)
	out.MemPolicy = readScoped(t, s, out, t.memoryPolicy, NRIMemPolicy, nriOldMemPolicy)
	out.Sysctls = readScoped(t, s, out, t.sysctls, NRISysctl)
	out.DeviceNodes = readScoped(t, s, out, t.injectedDevices, NRIDevices, nriOldDevices)
	out.Mounts = readScoped(t, s, out, t.hostMounts, NRIMounts, nriOldMounts)
	out.CDIDevices = readScoped(t, s, out, t.cdiDevices, NRICDI, nriOldCDI)
	out.WritableCgroups = readScoped(t, s, out, t.boolean, NRICgroups)
	out.ClosID = readScoped(t, s, out, t.closID, NRIClosID)
	out.Schemata = readScoped(t, s, out, t.schemata, NRISchemata)
	out.Monitoring = readScoped(t, s, out, t.boolean, NRIMonitoring)
	out.NetDevices = readScoped(t, s, out, t.netDevices, NRINetDevices, nriOldNetDevices)
	for _, name := range []string{NRIPodNetwork, nriOldPodNetwork} {
		for _, container := range s.containers(name) {
			out.reportUnserved(name+"/container."+container, "", "the key is not supported: %s", podNetworkOnly)
		}
	}
	out.PodInterfaces = readPod(t, out, t.podInterfaces, NRIPodNetwork, nriOldPodNetwork)
}
