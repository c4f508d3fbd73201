package podspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/trimtab/trimtab/internal/jsonwords"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// v1Pod has the fields of a v1.Pod that the agent reads. The agent does not use the types of k8s.io/api, because they
// would add megabytes to the binary.
type v1Pod struct {
	Metadata v1Metadata `json:"metadata"`
	Spec     struct {
		NodeName            string                `json:"nodeName"`
		InitContainers      []v1Container         `json:"initContainers"`
		Containers          []v1Container         `json:"containers"`
		EphemeralContainers []v1Container         `json:"ephemeralContainers"`
		Overhead            map[string]v1Quantity `json:"overhead"`
		Resources           v1Resources           `json:"resources"`
	} `json:"spec"`
	Status struct {
		QoS   string `json:"qosClass"`
		Phase string `json:"phase"`
	} `json:"status"`
}

// v1Metadata has the fields of a v1.ObjectMeta that the agent reads.
type v1Metadata struct {
	Version     string            `json:"resourceVersion"`
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	UID         string            `json:"uid"`
	Deletion    string            `json:"deletionTimestamp"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// v1Container has the fields of a v1.Container that the agent reads.
type v1Container struct {
	Name          string      `json:"name"`
	RestartPolicy string      `json:"restartPolicy"`
	Resources     v1Resources `json:"resources"`
}

// v1Resources has the fields of a v1.ResourceRequirements that the agent reads.
type v1Resources struct {
	Requests map[string]v1Quantity `json:"requests"`
	Limits   map[string]v1Quantity `json:"limits"`
}

// v1Quantity is the text of a quantity. In JSON, a quantity may be a string or a number.
type v1Quantity string

// UnmarshalJSON stores the text without quotation marks.
func (q *v1Quantity) UnmarshalJSON(b []byte) error {
	*q = v1Quantity(strings.Trim(string(b), `"`))
	return nil
}

// podList has the fields of a v1.PodList that the agent reads.
type podList struct {
	version string // the resourceVersion of the list, from which a watch begins
	pods    []*lifecycle.PodSpec
	unread  []UnreadPod            // pods that cannot be read
	pending map[string]*PendingPod // the pods that have not started, by UID
}

// decodeList reads a v1.PodList of a source. It reads one pod after the other, so that the whole text is never in
// memory.
func decodeList(r io.Reader, from lifecycle.Source) (podList, error) {
	var l podList
	d := json.NewDecoder(r)
	if err := expect(d, json.Delim('{')); err != nil {
		return podList{}, err
	}
	kind, items := "", false
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return podList{}, err
		}
		switch key {
		case "kind":
			err = d.Decode(&kind)
		case "metadata":
			var meta v1Metadata
			err = d.Decode(&meta)
			l.version = meta.Version
		case "items":
			if items {
				return podList{}, errors.New("the list has two members named items")
			}
			items = true
			err = l.decodeItems(d, from)
		default:
			var skip json.RawMessage
			err = d.Decode(&skip)
		}
		if err != nil {
			return podList{}, err
		}
	}
	if err := expect(d, json.Delim('}')); err != nil {
		return podList{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return podList{}, errors.New("there is text after the end of the list")
	}
	if kind != "PodList" {
		return podList{}, fmt.Errorf("the text has the kind %.40q, want PodList", kind)
	}
	if !items {
		return podList{}, errors.New("the PodList has no field items")
	}
	return l, nil
}

// decodeItems reads the member items of the list.
func (l *podList) decodeItems(d *json.Decoder, from lifecycle.Source) error {
	start, err := d.Token()
	if err != nil || start == nil { // a list without items may be null
		return err
	}
	if start != json.Delim('[') {
		return errors.New("the member items is not a list")
	}
	for d.More() {
		var p v1Pod
		// A value of the wrong type concerns only this pod: the decoder has read the whole pod.
		err, ofPod := d.Decode(&p), (*json.UnmarshalTypeError)(nil)
		if err != nil && !errors.As(err, &ofPod) {
			return err
		}
		var s *lifecycle.PodSpec
		if err == nil {
			s, err = p.spec(from)
		}
		if err := l.add(s, p.pending(), p.Metadata.UID, false, jsonwords.Error(err)); err != nil {
			return err
		}
	}
	return expect(d, json.Delim(']'))
}

// add adds a pod to the list. If gone is true, the pod was deleted, and add does not add it. pending is nil if the pod
// has started or is being deleted. err is the reason why the pod cannot be read, or nil. An unreadable pod does not end
// the list: add returns an error only if there are too many pods.
func (l *podList) add(s *lifecycle.PodSpec, pending *PendingPod, uid string, gone bool, err error) error {
	switch {
	case len(l.pods)+len(l.unread) == maxPods:
		return fmt.Errorf("the list has more than %d pods", maxPods)
	case err != nil:
		l.unread = append(l.unread, UnreadPod{uid, err})
	case !gone:
		l.pods = append(l.pods, s)
		if pending != nil {
			if l.pending == nil {
				l.pending = map[string]*PendingPod{}
			}
			l.pending[s.UID] = pending
		}
	}
	return nil
}

// toUpdate returns the list as an Update. indexByUID checks the pods first.
func (l *podList) toUpdate(node string) (Update, error) {
	all, twice, err := indexByUID(l.pods, node)
	return Update{All: all, Full: true, Pending: l.pending, Unread: append(l.unread, twice...)}, err
}

// expect reads the next token, and returns an error if the token is not want.
func expect(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if err == nil && got != want {
		err = fmt.Errorf("the JSON text has %v in place of %v", got, want)
	}
	return err
}

// ParsePod reads one v1.Pod from JSON, as the kubelet reports it.
func ParsePod(text []byte) (*lifecycle.PodSpec, error) {
	var p v1Pod
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("read a pod: %w", jsonwords.Error(err))
	}
	return p.spec(lifecycle.FromKubelet)
}
