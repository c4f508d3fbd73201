package criclient

import (
	"errors"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// configRow describes one field of ContainerConfig. A row without read is not
// carried, and its note says why. A proto that ends in "." stands for all below it.
type configRow struct {
	proto, life string
	number      protowire.Number // in ContainerConfig (api.proto of the CRI, v1)
	read        func(r *reading, b []byte) error
	note        string
}

// configFields finds rows that are read by their number.
var configFields = func() (of [32]func(r *reading, b []byte) error) {
	for _, row := range containerTable {
		if row.read != nil {
			of[row.number] = row.read
		}
	}
	return of
}()

// reading takes a ContainerConfig in as it lies in a request. A container is told
// of once and its kubelet waits: there is nothing in between, and its texts lie in
// one piece. As in all of protobuf the last of a field counts, what is said twice
// of a message is laid over, and what is not known is passed over.
type reading struct {
	into  *lifecycle.Container
	texts strings.Builder

	commands, arguments []string

	options []string // of mounts, two each
}

var errText = errors.New("a text is not UTF-8")

// ContainerOfConfig reads a container's configuration as it lies in a request. ok is false where the
// configuration cannot be read.
func ContainerOfConfig(config []byte, pod string) (l *lifecycle.Container, ok bool) {
	l = &lifecycle.Container{PodID: pod, State: lifecycle.StateCreated}
	r := &reading{into: l}
	r.makeRoom(config)
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
	l.Args = append(r.commands, r.arguments...)
	l.Together() // what outlives all else of it is apart
	return l, true
}

// makeRoom makes room for what comes often.
func (r *reading) makeRoom(config []byte) {
	var n [len(configFields)]int
	size := 0
	_ = EachField(config, func(number protowire.Number, _ uint64, b []byte) error {
		if int(number) < len(n) && configFields[number] != nil {
			n[number]++
			size += len(b)
		}
		return nil
	})
	r.texts.Grow(size) // and a little more than it takes
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

// text is what a field says.
func (r *reading) text(b []byte) (string, error) {
	if !utf8.Valid(b) {
		return "", errText
	}
	from := r.texts.Len()
	r.texts.Write(b)
	return r.texts.String()[from:], nil
}

// named reads fields that are texts by their numbers.
func (r *reading) named(b []byte, into func(n protowire.Number) *string) error {
	return EachField(b, func(n protowire.Number, _ uint64, b []byte) (err error) {
		if to := into(n); to != nil && b != nil {
			*to, err = r.text(b)
		}
		return err
	})
}

// pair reads an entry of a map, and what looks like one.
func (r *reading) pair(b []byte) (key, value string, err error) {
	err = r.named(b, func(n protowire.Number) *string {
		switch n {
		case 1:
			return &key
		case 2:
			return &value
		}
		return nil
	})
	return key, value, err
}

// first reads a message's field 1.
func (r *reading) first(b []byte) (text string, err error) {
	err = r.named(b, func(n protowire.Number) *string {
		if n == 1 {
			return &text
		}
		return nil
	})
	return text, err
}

func (r *reading) metadata(b []byte) error {
	return r.named(b, func(n protowire.Number) *string {
		if n == 1 {
			return &r.into.Name
		}
		return nil
	})
}

func (r *reading) image(b []byte) error {
	if r.into.Image == nil {
		r.into.Image = &lifecycle.Image{}
	}
	return r.named(b, func(n protowire.Number) *string {
		switch n {
		case 1: // image
			return &r.into.Image.Digest
		case 18: // user_specified_image
			return &r.into.Image.Name
		}
		return nil
	})
}

func (r *reading) command(b []byte) error { return r.add(&r.commands, b) }

func (r *reading) argument(b []byte) error { return r.add(&r.arguments, b) }

func (r *reading) add(list *[]string, b []byte) error {
	text, err := r.text(b)
	*list = append(*list, text)
	return err
}

// env reads a variable; its value is bytes of any kind.
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

func (r *reading) device(b []byte) error {
	path, err := r.first(b) // container_path
	r.into.Devices = append(r.into.Devices, lifecycle.Device{Path: strings.Clone(path)})
	return err
}

func (r *reading) cdi(b []byte) error {
	name, err := r.first(b)
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
		r.into.OOMScoreAdj.Set = true // 0 is a score
		return EachField(b, func(n protowire.Number, v uint64, b []byte) error {
			if b == nil {
				r.number(n, int64(v)) //nolint:gosec // as protobuf reads an int64
				return nil
			}
			return r.resource(n, b)
		})
	})
}

// number takes a number of LinuxContainerResources, resource what is none.
func (r *reading) number(n protowire.Number, v int64) {
	l := &r.into.Resources
	switch n {
	case 1:
		l.CPU.Period = said(uint64(max(v, 0)))
	case 2:
		l.CPU.Quota = said(v)
	case 3:
		l.CPU.Shares = said(uint64(max(v, 0)))
	case 4:
		l.Memory.Limit = said(v)
	case 5:
		r.into.OOMScoreAdj.V = v
	case 10:
		l.Memory.Swap = said(v)
	}
}

func (r *reading) resource(n protowire.Number, b []byte) (err error) {
	l := &r.into.Resources
	switch n {
	case 6:
		l.CPU.CPUs, err = r.text(b)
	case 7:
		l.CPU.Mems, err = r.text(b)
	case 8:
		var h lifecycle.HugepageLimit
		err = EachField(b, func(n protowire.Number, v uint64, b []byte) (err error) {
			switch {
			case n == 1 && b != nil:
				h.Size, err = r.text(b)
				h.Size = strings.Clone(h.Size)
			case n == 2 && b == nil:
				h.Limit = v
			}
			return err
		})
		l.Hugepages = append(l.Hugepages, h)
	case 9:
		var key, value string
		key, value, err = r.pair(b)
		if l.Unified == nil {
			l.Unified = map[string]string{}
		}
		l.Unified[strings.Clone(key)] = strings.Clone(value)
	}
	return err
}
