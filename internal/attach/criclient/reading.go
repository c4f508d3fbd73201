package criclient

import (
	"errors"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// configRow describes one field of ContainerConfig. Without read, the field is not converted, and the note says
// why. A proto that ends in "." stands for all fields below it.
type configRow struct {
	proto, life string
	number      protowire.Number // in ContainerConfig (api.proto of the CRI, v1)
	read        func(r *reading, b []byte) error
	note        string
}

// configFields has the read functions by field number.
var configFields = func() (of [32]func(r *reading, b []byte) error) {
	for _, row := range containerTable {
		if row.read != nil {
			of[row.number] = row.read
		}
	}
	return of
}()

// reading decodes a ContainerConfig from the bytes of a request. The kubelet waits for a creation, so reading
// decodes into lifecycle types directly, and its strings share one buffer. As everywhere in protobuf, the last
// occurrence of a field counts, messages that occur twice are merged, and unknown fields are skipped.
type reading struct {
	into  *lifecycle.Container
	texts strings.Builder

	commands, arguments []string

	options []string // of mounts, two each

	resources *pRes
}

var errText = errors.New("a text is not UTF-8")

// ContainerOfConfig reads a container's configuration from the bytes of a request. ok
// is false for a malformed one.
func ContainerOfConfig(config []byte, pod string) (l *lifecycle.Container, ok bool) {
	l = &lifecycle.Container{PodID: pod, State: lifecycle.StateCreated}
	r := &reading{into: l}
	r.allocate(config)
	err := EachField(config, func(n protowire.Number, _ uint64, b []byte) error {
		if b == nil || int(n) >= len(configFields) || configFields[n] == nil {
			return nil
		}
		return configFields[n](r, b)
	})
	if err != nil {
		return nil, false
	}
	if l.Image != nil && *l.Image == (lifecycle.Image{}) {
		l.Image = nil
	}
	if r.resources != nil {
		convert(resourceTable, r.resources, &l.Resources)
		l.OOMScoreAdj = lifecycle.Some(r.resources.OomScoreAdj) // 0 is a score
	}
	l.Args = append(r.commands, r.arguments...)
	l.CompactIDs() // strings that are kept longer than the rest get their own buffer
	return l, true
}

// allocate allocates the strings and the lists of common fields at once.
func (r *reading) allocate(config []byte) {
	var n [len(configFields)]int
	size := 0
	_ = EachField(config, func(number protowire.Number, _ uint64, b []byte) error {
		if int(number) < len(n) && configFields[number] != nil {
			n[number]++
			size += len(b)
		}
		return nil
	})
	r.texts.Grow(size) // this is a little more than the strings need
	if n[6] > 0 {
		r.into.Env = make([]string, 0, n[6])
	}
	if n[7] > 0 {
		r.into.Mounts, r.options = make([]lifecycle.Mount, 0, n[7]), make([]string, 0, 2*n[7])
	}
	if n[9] > 0 {
		r.into.Labels = make(map[string]string, n[9])
	}
	if n[10] > 0 {
		r.into.Annotations = make(map[string]string, n[10])
	}
}

// text returns a field as a string.
func (r *reading) text(b []byte) (string, error) {
	if !utf8.Valid(b) {
		return "", errText
	}
	from := r.texts.Len()
	r.texts.Write(b)
	return r.texts.String()[from:], nil
}

// field is the destination of a string field, by its number.
type field struct {
	number protowire.Number
	to     *string
}

// named reads string fields.
func (r *reading) named(b []byte, into ...field) error {
	return EachField(b, func(n protowire.Number, _ uint64, b []byte) (err error) {
		for _, f := range into {
			if f.number == n && b != nil {
				*f.to, err = r.text(b)
			}
		}
		return err
	})
}

// pair reads an entry of a map, or a message of the same form.
func (r *reading) pair(b []byte) (key, value string, err error) {
	err = r.named(b, field{1, &key}, field{2, &value})
	return key, value, err
}

func (r *reading) metadata(b []byte) error { return r.named(b, field{1, &r.into.Name}) }

func (r *reading) image(b []byte) error {
	if r.into.Image == nil {
		r.into.Image = &lifecycle.Image{}
	}
	return r.named(b, field{1, &r.into.Image.Digest}, field{18, &r.into.Image.Name}) // image, user_specified_image
}

func (r *reading) command(b []byte) error { return r.add(&r.commands, b) }

func (r *reading) argument(b []byte) error { return r.add(&r.arguments, b) }

func (r *reading) add(list *[]string, b []byte) error {
	text, err := r.text(b)
	*list = append(*list, text)
	return err
}

// env reads a variable; its value may be any bytes.
func (r *reading) env(b []byte) error {
	var key, value []byte
	if err := EachField(b, func(n protowire.Number, _ uint64, b []byte) error {
		switch {
		case b == nil:
		case n == 1:
			key = b
		case n == 2:
			value = b
		}
		return nil
	}); err != nil {
		return err
	}
	from := r.texts.Len()
	_, err := r.text(key)
	r.texts.WriteByte('=')
	r.texts.Write(value)
	r.into.Env = append(r.into.Env, r.texts.String()[from:])
	return err
}

func (r *reading) mount(b []byte) error {
	m := lifecycle.Mount{Type: "bind"}
	access := "rw"
	err := EachField(b, func(n protowire.Number, v uint64, b []byte) (err error) {
		switch {
		case n == 1 && b != nil: // container_path
			m.Destination, err = r.text(b)
		case n == 2 && b != nil: // host_path
			m.Source, err = r.text(b)
		case n == 3 && b == nil: // readonly
			if access = "rw"; v != 0 {
				access = "ro"
			}
		}
		return err
	})
	at := len(r.options)
	r.options = append(r.options, "rbind", access)
	m.Options = r.options[at : at+2 : at+2]
	r.into.Mounts = append(r.into.Mounts, m)
	return err
}

// device reads the path of a device in the container.
func (r *reading) device(b []byte) error {
	var path string
	err := r.named(b, field{1, &path})
	r.into.Devices = append(r.into.Devices, lifecycle.Device{Path: strings.Clone(path)})
	return err
}

func (r *reading) cdi(b []byte) error {
	var name string
	err := r.named(b, field{1, &name})
	r.into.CDIDevices = append(r.into.CDIDevices, strings.Clone(name))
	return err
}

func (r *reading) label(b []byte) error {
	key, value, err := r.pair(b)
	r.into.Labels[key] = value
	return err
}

func (r *reading) annotation(b []byte) error {
	key, value, err := r.pair(b)
	r.into.Annotations[key] = value
	return err
}

// linux reads the resources of a LinuxContainerConfig.
func (r *reading) linux(b []byte) error {
	return EachField(b, func(n protowire.Number, _ uint64, b []byte) error {
		if n != 1 || b == nil {
			return nil
		}
		if r.resources == nil {
			r.resources = &pRes{}
		}
		return proto.UnmarshalOptions{Merge: true}.Unmarshal(b, r.resources)
	})
}
