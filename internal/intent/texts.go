package intent

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/jsonwords"
	"github.com/trimtab/trimtab/internal/lifecycle"
	kjson "sigs.k8s.io/json"
)

// Limits for the labels and annotations that the agent reads from one pod. The API server accepts 256 KiB of
// annotations. The agent decides one event at a time, so long annotations of one pod must not delay other pods.
// Schedulers write far less than the limits: 3 KiB for a list of 1,024 CPUs, 200 bytes for each container with batch
// resources, 250 bytes for each device. lifecycle.MaxValueBytes limits a single text.
const (
	// maxTexts limits the labels and annotations that are read from a pod, in bytes.
	maxTexts = 32 << 10
	// maxValues limits the objects, lists and members in the JSON of a pod's annotations, because each of them takes
	// much time to parse. A container with batch resources has seven of them.
	maxValues = 768
	// maxMemberName limits the name of a member of a JSON object in bytes, because errors repeat it.
	maxMemberName = 512
)

// podTexts has the labels and annotations of one pod. Dialects get a podTexts instead of the pod, so that they
// cannot bypass the limits.
type podTexts struct {
	labels, annotations editedTexts
	parent              string // the pod's cgroup parent
	// read has the texts that were read, by kind ("label " or "annotation ") and key. A text that exceeds the limits
	// is "".
	read map[string]string
	*textBudget
}

// editedTexts has the labels, or the annotations, of a pod at its creation and now.
type editedTexts struct {
	created, current map[string]string  // from the runtime, and from the pod's spec
	meta             *lifecycle.PodMeta // tells for which keys current applies; nil if current is not known
}

// of returns the value of a key; "" if it is missing.
func (e editedTexts) of(key string) string {
	if e.meta.Has(key) {
		return e.current[key]
	}
	return e.created[key]
}

// textBudget is the amount of a pod's text that the agent may still read.
type textBudget struct {
	bytes, values int // bytes of text, and values in JSON
	// yaml is a number of bytes of YAML. indicators is a number of characters in YAML that may begin a value.
	yaml, indicators int
	problems         []lifecycle.Problem // of the texts that exceeded the budget or another limit
}

// podTextsOf returns the labels and annotations of a pod, with a full budget. spec is nil if it is not known.
func podTextsOf(pod *lifecycle.Pod, spec *lifecycle.PodSpec) *podTexts {
	t := &podTexts{
		labels: editedTexts{created: pod.Labels}, annotations: editedTexts{created: pod.Annotations}, parent: pod.CgroupParent,
		read: map[string]string{}, textBudget: &textBudget{bytes: maxTexts, values: maxValues, yaml: maxYAMLBytes, indicators: maxIndicators},
	}
	if spec != nil && spec.Meta != nil {
		t.labels.meta, t.annotations.meta = spec.Meta, spec.Meta
		t.labels.current, t.annotations.current = spec.Meta.Labels, spec.Meta.Annotations
	}
	return t
}

// RequestsDevices reports whether a pod has the annotation that requests devices. The decision about such a pod can
// depend on the devices that the kubelet granted.
func RequestsDevices(pod *lifecycle.Pod) bool { return pod.Annotations[KoordDevices] != "" }

// LabelOf returns the value of a label at the pod's creation. ok is false if the label is missing or too
// long.
func LabelOf(pod *lifecycle.Pod, key string) (value string, ok bool) {
	value, ok = pod.Labels[key]
	return value, ok && len(value) <= lifecycle.MaxValueBytes
}

// forgesRecord returns the value of the annotation RecordKey if a pod has this annotation. Only containers may have the
// annotation, and only the agent may write it.
func forgesRecord(pod *lifecycle.Pod) (text string, forged bool) {
	text, forged = pod.Annotations[RecordKey]
	return text, forged
}

// ContainerMetadata returns the labels and annotations of a container, without the agent's record. The conditions of
// rules and policies are checked against them. The limits of textBudget do not apply to these texts, because the agent
// does not parse them.
func ContainerMetadata(c *lifecycle.Container) (labels, annotations map[string]string) {
	annotations = c.Annotations
	if _, has := annotations[RecordKey]; has {
		annotations = maps.Clone(annotations)
		delete(annotations, RecordKey)
	}
	return c.Labels, annotations
}

// maxHookTexts limits the annotations that are matched against conditions of OCI hooks, in bytes of
// keys and values.
const maxHookTexts = 64 << 10

// AnnotationsForHooks returns the annotations that are matched against conditions of OCI hooks: the annotations of the
// pod and of the container. The pod's annotations have priority, as in NRI's plugin hook-injector (0.12).
// AnnotationsForHooks leaves out annotations with a value longer than lifecycle.MaxValueBytes. It takes the other
// annotations in the order of their keys. If the total size with an annotation would exceed maxHookTexts, it leaves out
// this annotation.
func AnnotationsForHooks(pod *lifecycle.Pod, ofContainer map[string]string) map[string]string {
	all := make(map[string]string, len(ofContainer))
	maps.Copy(all, ofContainer)
	if pod != nil {
		maps.Copy(all, pod.Annotations)
	}
	room := maxHookTexts
	for _, key := range slices.Sorted(maps.Keys(all)) {
		size := len(key) + len(all[key])
		if len(all[key]) > lifecycle.MaxValueBytes || size > room {
			delete(all, key)
			continue
		}
		room -= size
	}
	return all
}

// label returns the value of a label; "" if it is missing or exceeds the limits.
func (t *podTexts) label(key string) string { return t.text("label ", key, t.labels) }

// annotation returns the value of an annotation; "" if it is missing or exceeds the limits.
func (t *podTexts) annotation(key string) string { return t.text("annotation ", key, t.annotations) }

// textOf returns the value of a key, from labels or annotations. The value does not count against the limits,
// because the agent does not parse the value.
func (t *podTexts) textOf(k Key, name string) string {
	if k.Location == PodAnnotation {
		return t.annotations.of(name)
	}
	text := t.labels.of(name)
	if text == "" && k.Location == PodAnnotationOrLabel {
		text = t.annotations.of(name)
	}
	return text
}

// text returns the value of a label or annotation. When a value is read for the first time, text subtracts the value's
// length from the budget.
func (t *podTexts) text(kind, key string, from editedTexts) string {
	text := from.of(key)
	if text == "" {
		return ""
	}
	if known, read := t.read[kind+key]; read {
		return known
	}
	t.read[kind+key] = ""
	switch {
	case len(text) > lifecycle.MaxValueBytes:
		t.reportTooLong(key, text, "the text is longer than %d bytes", lifecycle.MaxValueBytes)
	case len(text) > t.bytes:
		t.reportTooLong(key, text, "the text is too long: the agent reads at most %d bytes of the labels and annotations of one pod", maxTexts)
	default:
		t.bytes -= len(text)
		t.read[kind+key] = text
	}
	return t.read[kind+key]
}

// reportTooLong reports a text that exceeds the limits.
func (t *podTexts) reportTooLong(key, text, format string, args ...any) {
	t.problems = append(t.problems, lifecycle.Problem{Key: key, Value: printable(text), Reason: fmt.Sprintf(format, args...)})
}

// decode decodes the JSON of an annotation. Keys are case-sensitive, and duplicate keys are errors. Unknown keys are
// allowed, because newer schedulers add keys. decode returns false if the annotation is missing or malformed. It
// reports a malformed annotation.
func (t *podTexts) decode(key string, into any, out *Pod) bool {
	text := t.annotation(key)
	if text == "" {
		return false
	}
	values, member := measureJSON(text)
	switch {
	case values > t.values:
		out.reportMalformed(key, text, "too many JSON values: the agent reads at most %d from the annotations of one pod", maxValues)
		return false
	case member > maxMemberName:
		out.reportMalformed(key, text, "malformed JSON: a member has a name longer than %d bytes", maxMemberName)
		return false
	}
	t.values -= values
	strict, err := kjson.UnmarshalStrict([]byte(text), into, kjson.DisallowDuplicateFields)
	if err = errors.Join(append(strict, err)...); err != nil {
		out.reportMalformed(key, text, "malformed JSON: %s", oneLine(jsonwords.Error(err)))
		return false
	}
	return true
}

// members returns the names of the members of an annotation's JSON object. decode must have decoded the
// annotation before.
func (t *podTexts) members(key string) []string {
	var all map[string]json.RawMessage
	if kjson.UnmarshalCaseSensitivePreserveInts([]byte(t.annotation(key)), &all) != nil {
		return nil
	}
	return sortedKeys(all)
}

// oneLine returns the text of an error on one line.
func oneLine(err error) string { return printable(strings.ReplaceAll(err.Error(), "\n", "; ")) }

// measureJSON returns the number of values in a JSON text, and the length of the longest member name. Each comma and
// each opening bracket counts as a value. measureJSON does not check the text: the decoder refuses malformed JSON.
func measureJSON(text string) (values, member int) {
	length := 0 // of the last string
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ',', '{', '[':
			values++
		case ':':
			member = max(member, length)
		case '"':
			from := i
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			length = i - from
		}
	}
	return values, member
}
