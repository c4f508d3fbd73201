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

// Limits for the texts that the agent reads from one pod. The API server accepts 256 KiB of
// annotations, and the agent decides one event at a time, so the largest pod must not delay the
// others. Schedulers write far less: 3 KiB for the CPUs of a node with 1,024, 200 bytes for each
// container with batch resources, 250 bytes for each device. One text has at most
// lifecycle.MaxText.
const (
	// maxTexts limits all labels and annotations of a pod that are read.
	maxTexts = 32 << 10
	// maxValues limits the objects, lists and members in their JSON: each costs
	// more time than its bytes. A container with batch resources has seven.
	maxValues = 768
	// maxMember limits the name of a member of a JSON object, which errors repeat.
	maxMember = 512
)

// texts are the labels and annotations of one pod. Dialects get them instead of the pod, so
// that no key can be read without the limits.
type texts struct {
	labels, annotations edited
	parent              string // the pod's cgroup parent
	// read has the texts that were read, by kind and key. A text beyond the limits is "".
	read map[string]string
	*textBudget
}

// edited has the labels, or the annotations, of a pod at its creation and now. The runtime
// stores the former, the pod's spec has the latter. Keys says which one counts for each key.
type edited struct {
	created, now map[string]string
	meta         *lifecycle.PodMeta // nil if now is not known
}

func (e edited) of(key string) string {
	if e.meta.Has(key) {
		return e.now[key]
	}
	return e.created[key]
}

// textBudget is the amount of a pod's text that may still be read, and the problems with texts
// beyond it.
type textBudget struct {
	bytes, values int
	yaml, marks   int // bytes that may still be read as YAML, and signs in them that begin values
	problems      []lifecycle.Problem
}

func textsOf(pod *lifecycle.Pod, spec *lifecycle.PodSpec) *texts {
	t := &texts{
		labels: edited{created: pod.Labels}, annotations: edited{created: pod.Annotations}, parent: pod.CgroupParent,
		read: map[string]string{}, textBudget: &textBudget{bytes: maxTexts, values: maxValues, yaml: maxYAML, marks: maxMarks},
	}
	if spec != nil && spec.Meta != nil {
		t.labels.meta, t.annotations.meta = spec.Meta, spec.Meta
		t.labels.now, t.annotations.now = spec.Meta.Labels, spec.Meta.Annotations
	}
	return t
}

// AsksDevices reports whether a pod may request devices. For other pods the kubelet's grants
// have no effect.
func AsksDevices(pod *lifecycle.Pod) bool { return pod.Annotations[KoordDevices] != "" }

// LabelOf returns a label of a pod, as it was at the pod's creation; ok is false if the pod has
// none, or one that is too long.
func LabelOf(pod *lifecycle.Pod, key string) (value string, ok bool) {
	value, ok = pod.Labels[key]
	return value, ok && len(value) <= lifecycle.MaxText
}

// forgesRecord returns the value of the record key on a pod, which only containers may have.
func forgesRecord(pod *lifecycle.Pod) (text string, forged bool) {
	text, forged = pod.Annotations[RecordKey]
	return text, forged
}

// OfContainer returns the labels and annotations of a container for the conditions of policies.
// The annotation with the agent's own record is left out. The limits above do not apply: they
// bound what the agent parses, and the cost limit of a rule bounds what it compares.
func OfContainer(c *lifecycle.Container) (labels, annotations map[string]string) {
	annotations = c.Annotations
	if _, has := annotations[RecordKey]; has {
		annotations = maps.Clone(annotations)
		delete(annotations, RecordKey)
	}
	return c.Labels, annotations
}

// maxHookTexts limits the keys and values of annotations that conditions of OCI hooks are
// matched against, in bytes.
const maxHookTexts = 64 << 10

// ForHooks returns the annotations that conditions of OCI hooks are about: those of a
// container, and above them those of its pod. Source: NRI 0.12, plugin hook-injector. A value
// that is longer than lifecycle.MaxText is left out, and so are those beyond maxHookTexts, in
// the order of their keys.
func ForHooks(pod *lifecycle.Pod, ofContainer map[string]string) map[string]string {
	all := make(map[string]string, len(ofContainer))
	maps.Copy(all, ofContainer)
	if pod != nil {
		maps.Copy(all, pod.Annotations)
	}
	room := maxHookTexts
	for _, key := range slices.Sorted(maps.Keys(all)) {
		size := len(key) + len(all[key])
		if len(all[key]) > lifecycle.MaxText || size > room {
			delete(all, key)
			continue
		}
		room -= size
	}
	return all
}

// label returns a label, "" if it is missing or beyond the limits.
func (t *texts) label(key string) string { return t.text("label ", key, t.labels) }

// annotation returns an annotation, like label.
func (t *texts) annotation(key string) string { return t.text("annotation ", key, t.annotations) }

// under returns the text of a key, as label or annotation. Only its presence matters, so it
// does not count for the limits.
func (t *texts) under(k Key, name string) string {
	if k.Place == OnPod {
		return t.annotations.of(name)
	}
	text := t.labels.of(name)
	if text == "" && k.Place == AsEither {
		text = t.annotations.of(name)
	}
	return text
}

func (t *texts) text(kind, key string, from edited) string {
	text := from.of(key)
	if text == "" {
		return ""
	}
	if known, read := t.read[kind+key]; read {
		return known
	}
	t.read[kind+key] = ""
	switch {
	case len(text) > lifecycle.MaxText:
		t.refuse(key, text, "longer than %d bytes", lifecycle.MaxText)
	case len(text) > t.bytes:
		t.refuse(key, text, "too long: the agent reads at most %d bytes of one pod", maxTexts)
	default:
		t.bytes -= len(text)
		t.read[kind+key] = text
	}
	return t.read[kind+key]
}

// refuse reports a text beyond the limits.
func (t *texts) refuse(key, text, format string, args ...any) {
	t.problems = append(t.problems, lifecycle.Problem{Key: key, Value: printable(text), Reason: fmt.Sprintf(format, args...)})
}

// decode decodes the JSON of an annotation: case-sensitive, no key twice, unknown keys allowed
// because newer schedulers add some. It returns false if the key is absent, or the text is
// malformed, which it reports.
func (t *texts) decode(key string, into any, out *Pod) bool {
	text := t.annotation(key)
	if text == "" {
		return false
	}
	values, member := shape(text)
	switch {
	case values > t.values:
		out.problem(key, text, "too many values: the agent reads at most %d of one pod", maxValues)
		return false
	case member > maxMember:
		out.problem(key, text, "malformed JSON: a name longer than %d bytes", maxMember)
		return false
	}
	t.values -= values
	strict, err := kjson.UnmarshalStrict([]byte(text), into, kjson.DisallowDuplicateFields)
	if err = errors.Join(append(strict, err)...); err != nil {
		out.problem(key, text, "malformed JSON: %s", oneLine(jsonwords.Error(err)))
		return false
	}
	return true
}

// members returns the names of the members of an annotation's JSON object, which was decoded
// before.
func (t *texts) members(key string) []string {
	var all map[string]json.RawMessage
	if kjson.UnmarshalCaseSensitivePreserveInts([]byte(t.annotation(key)), &all) != nil {
		return nil
	}
	return sortedKeys(all)
}

func oneLine(err error) string { return printable(strings.ReplaceAll(err.Error(), "\n", "; ")) }

// shape counts the objects, lists, and members after the first of a JSON text, and returns the
// length of the longest member name. The decoder refuses text that is no JSON.
func shape(text string) (values, member int) {
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
