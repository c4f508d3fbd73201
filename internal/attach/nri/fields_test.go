package nri

import (
	"fmt"
	"reflect"
	"sort"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// tables has every conversion table by the message that it converts.
func tables() map[protoreflect.FullName]nestedTable {
	name := func(m proto.Message) protoreflect.FullName { return m.ProtoReflect().Descriptor().FullName() }
	return map[protoreflect.FullName]nestedTable{
		name(&api.PodSandbox{}): &podTable, name(&api.LinuxPodSandbox{}): &linuxPodTable,
		name(&api.Container{}): &containerTable, name(&api.LinuxContainer{}): &linuxContainerTable,
		name(&api.LinuxResources{}): &resourcesTable, name(&api.LinuxCPU{}): &cpuTable,
		name(&api.LinuxMemory{}): &memoryTable, name(&api.HugepageLimit{}): &hugepageTable,
		name(&api.LinuxDeviceCgroup{}): &deviceRuleTable, name(&api.LinuxPids{}): &pidsTable,
		name(&api.LinuxNamespace{}): &namespaceTable, name(&api.Mount{}): &mountTable,
		name(&api.Hooks{}): &hooksTable, name(&api.Hook{}): &hookTable, name(&api.LinuxDevice{}): &deviceTable,
		name(&api.LinuxIOPriority{}): &ioPriorityTable, name(&api.SecurityProfile{}): &profileTable,
		name(&api.LinuxSeccomp{}): &seccompTable, name(&api.LinuxScheduler{}): &schedulerTable,
		name(&api.LinuxRdt{}): &rdtTable, name(&api.POSIXRlimit{}): &rlimitTable,
		name(&api.User{}): &userTable, name(&api.Image{}): &imageTable,
	}
}

// flat lists the messages that a row of their parent converts as a whole.
var flat = map[protoreflect.Name]bool{"CDIDevice": true, "LinuxNetDevice": true, "LinuxSyscall": true}

func optional(m protoreflect.MessageDescriptor) bool {
	return strings.HasPrefix(string(m.Name()), "Optional")
}

// TestEveryFieldHasARow checks the tables against the protocol's own description of its messages.
func TestEveryFieldHasARow(t *testing.T) {
	all, seen := tables(), map[protoreflect.FullName]bool{}
	var walk func(m protoreflect.MessageDescriptor)
	walk = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] || optional(m) || flat[m.Name()] {
			return
		}
		seen[m.FullName()] = true
		tab, ok := all[m.FullName()]
		if !ok {
			t.Errorf("message %s has no table", m.Name())
			return
		}
		names := names(tab)
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			if _, ok := names[string(f.Name())]; !ok {
				t.Errorf("%s.%s has no row", m.Name(), f.Name())
			}
			delete(names, string(f.Name()))
			if f.IsMap() {
				f = f.MapValue()
			}
			if f.Message() != nil {
				walk(f.Message())
			}
		}
		for n := range names {
			t.Errorf("%s has a row for %s, which the protocol does not have", m.Name(), n)
		}
	}
	walk((&api.PodSandbox{}).ProtoReflect().Descriptor())
	walk((&api.Container{}).ProtoReflect().Descriptor())
	if len(seen) != len(all) {
		t.Errorf("%d messages reached, %d tables", len(seen), len(all))
	}
}

// TestRows checks the rows that the docs are made from.
func TestRows(t *testing.T) {
	rows, set := map[string]FieldRow{}, map[string]bool{}
	for _, r := range FieldRows() {
		if _, twice := rows[r.Proto]; twice {
			t.Errorf("%s is listed twice", r.Proto)
		}
		if rows[r.Proto] = r; r.Setting != "" {
			set[r.Setting] = true
		}
		if r.Lifecycle == "" && !strings.HasPrefix(r.Proto, "ContainerAdjustment.") && !strings.HasPrefix(r.Note, "not converted: ") {
			t.Errorf("%s is not carried without a reason", r.Proto)
		}
		if runtimes.ParseVersion(r.NRIVersion) == (version{}) {
			t.Errorf("%s: since %q", r.Proto, r.NRIVersion)
		}
	}
	want := FieldRow{Proto: "Container.linux.resources.cpu.shares", Lifecycle: "Container.Resources.CPU.Shares", NRIVersion: "0.2",
		Setting: "cpu.shares", Adjust: true, Update: true, Note: settableFields[0].note}
	if d := cmp.Diff(want, rows[want.Proto]); d != "" {
		t.Error(d)
	}
	if got := rows["Container.linux.io_priority.class"].NRIVersion; got != "0.10" {
		t.Errorf("io_priority.class since %s", got)
	}
	for _, s := range settableFields {
		if !set[s.field.String()] {
			t.Errorf("setting %s names no row: %s", s.field, s.proto)
		}
	}
	for _, f := range lifecycle.Fields() {
		if settableByField[f.Field] == nil && !besideNRI[f.Field] {
			t.Errorf("field %s is in no setting", f.Name)
		}
	}
}

// besideNRI lists fields that NRI does not have: only the keeper writes them.
var besideNRI = map[lifecycle.Field]bool{
	lifecycle.IOLimit: true, lifecycle.RDTSchemata: true, lifecycle.RDTGroup: true, lifecycle.RDTMonitor: true, lifecycle.CoreSched: true,
}

// fill sets random fields of a message. Messages, lists and maps always get some content, and every text is
// different, so that a value in the wrong place is noticed.
func fill(t *rapid.T, m protoreflect.Message, n *int) {
	d := m.Descriptor()
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if !rapid.Bool().Draw(t, string(f.Name())) {
			continue
		}
		switch {
		case f.IsMap():
			mp := m.Mutable(f).Map()
			for range rapid.IntRange(1, 3).Draw(t, "n") {
				mp.Set(scalar(t, f.MapKey(), n).MapKey(), element(t, f.MapValue(), mp.NewValue(), n))
			}
		case f.IsList():
			l := m.Mutable(f).List()
			for range rapid.IntRange(1, 3).Draw(t, "n") {
				l.Append(element(t, f, l.NewElement(), n))
			}
		case f.Message() != nil:
			fill(t, m.Mutable(f).Message(), n)
		default:
			m.Set(f, scalar(t, f, n))
		}
	}
}

func element(t *rapid.T, f protoreflect.FieldDescriptor, zero protoreflect.Value, n *int) protoreflect.Value {
	if f.Message() == nil {
		return scalar(t, f, n)
	}
	fill(t, zero.Message(), n)
	return zero
}

func scalar(t *rapid.T, f protoreflect.FieldDescriptor, n *int) protoreflect.Value {
	*n++
	sign := int64(rapid.SampledFrom([]int{-1, 1}).Draw(t, "sign"))
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(fmt.Sprintf("v%d", *n))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(sign) * int32(*n))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(*n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(sign * int64(*n))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(*n))
	case protoreflect.EnumKind:
		v := f.Enum().Values()
		return protoreflect.ValueOfEnum(v.Get(rapid.IntRange(0, v.Len()-1).Draw(t, "enum")).Number())
	}
	panic("no generator for " + f.Kind().String())
}

// expect computes by reflection, without the functions of the tables, what they promise for a message:
// lifecycle path -> value. Zero values promise nothing.
func expect(out map[string]string, m protoreflect.Message, at string, all map[protoreflect.FullName]nestedTable) {
	names := names(all[m.Descriptor().FullName()])
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		life := names[string(f.Name())]
		path := strings.TrimSuffix(at+"."+strings.TrimRight(life, "[]{}"), ".")
		switch {
		case f.Name() == "syscalls":
			out[path] = fmt.Sprint(v.List().Len())
		case life == "" && f.Message() == nil, f.Name() == "default_errno": // not converted
		case f.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				expectOne(out, f.MapValue(), v, path+"{"+k.String()+"}", all)
				return true
			})
		case f.IsList():
			for i := range v.List().Len() {
				expectOne(out, f, v.List().Get(i), fmt.Sprintf("%s[%d]", path, i), all)
			}
		default:
			expectOne(out, f, v, path, all)
		}
		return true
	})
}

func expectOne(out map[string]string, f protoreflect.FieldDescriptor, v protoreflect.Value, path string, all map[protoreflect.FullName]nestedTable) {
	switch m := f.Message(); {
	case m == nil && f.Kind() == protoreflect.EnumKind && f.Name() == "state":
		out[path] = lifecycle.State(v.Enum()).String()
	case m == nil && f.Kind() == protoreflect.EnumKind:
		out[path] = string(f.Enum().Values().ByNumber(v.Enum()).Name())
	case m == nil:
		out[path] = v.String()
	case m.Name() == "OptionalRepeatedString":
		l := v.Message().Get(m.Fields().ByName("value")).List()
		for i := range l.Len() {
			out[fmt.Sprintf("%s[%d]", path, i)] = l.Get(i).String()
		}
	case optional(m):
		val := v.Message().Get(m.Fields().ByName("value"))
		if val.String() != "0" || f.Name() != "timeout" { // an absent timeout is 0
			out[path] = val.String()
		}
	case flat[m.Name()]:
		out[path] = v.Message().Get(m.Fields().ByName("name")).String()
	case m.Name() == "LinuxPids":
		out[path+".Pids"] = fmt.Sprint(v.Message().Get(m.Fields().ByName("limit")).Int())
	default:
		if v.Message().IsValid() {
			out[path+"!"] = "" // present, but it may be empty
		}
		expect(out, v.Message(), path, all)
	}
}

// actual reads a lifecycle value in the same way.
func actual(out map[string]string, v reflect.Value, at string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			out[at+"!"] = ""
			actual(out, v.Elem(), at)
		}
	case reflect.Struct:
		if set := v.FieldByName("Set"); set.IsValid() {
			if set.Bool() {
				out[at] = fmt.Sprint(v.FieldByName("V").Interface())
			}
			return
		}
		for i := range v.NumField() {
			actual(out, v.Field(i), at+"."+v.Type().Field(i).Name)
		}
	case reflect.Slice:
		for i := range v.Len() {
			p := fmt.Sprintf("%s[%d]", at, i)
			if e := v.Index(i); e.Kind() == reflect.String {
				out[p] = e.String()
			} else if e.Kind() == reflect.Uint32 {
				out[p] = fmt.Sprint(e.Uint())
			} else {
				actual(out, e, p)
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			out[at+"{"+it.Key().String()+"}"] = it.Value().String()
		}
	default:
		if !v.IsZero() {
			out[at] = fmt.Sprint(v.Interface())
		}
	}
}

// compare removes what the two readings cannot agree on: the presence of messages whose fields go into
// their parent, and names of zero enum values.
func compare(want, got map[string]string) string {
	present := func(m map[string]string) []string {
		var s []string
		for k, v := range m {
			_, inBoth := got[k]
			if strings.HasSuffix(k, "!") && !inBoth {
				continue // the destination of the entry is a value that always exists
			}
			if v != "" || strings.HasSuffix(k, "!") {
				s = append(s, k+"="+v)
			}
		}
		sort.Strings(s)
		return s
	}
	return cmp.Diff(present(want), present(got))
}

// zeroEnums adds the lifecycle names of a message's absent enums.
func zeroEnums(out map[string]string, c *lifecycle.Container) {
	add := func(present bool, path, name string) {
		if _, ok := out[path]; present && !ok {
			out[path] = name
		}
	}
	add(c.IOPriority != nil, "Container.IOPriority.Class", "IOPRIO_CLASS_NONE")
	add(c.Seccomp != nil, "Container.Seccomp.Type", "RUNTIME_DEFAULT")
	add(c.Scheduler != nil, "Container.Scheduler.Policy", "SCHED_NONE")
	if out["Container.State"] == "unknown" {
		delete(out, "Container.State")
	}
}

// TestContainerIn: every field that a runtime sends about a container arrives where its row says, and
// nothing else changes.
func TestContainerIn(t *testing.T) {
	all := tables()
	rapid.Check(t, func(t *rapid.T) {
		p, n := &api.Container{}, 0
		fill(t, p.ProtoReflect(), &n)
		c := convertContainer(p)
		want, got := map[string]string{}, map[string]string{}
		expect(want, p.ProtoReflect(), "Container", all)
		zeroEnums(want, c)
		actual(got, reflect.ValueOf(*c), "Container")
		if d := compare(want, got); d != "" {
			t.Fatal(d)
		}
	})
}

// TestPodIn is the same for pods.
func TestPodIn(t *testing.T) {
	all := tables()
	rapid.Check(t, func(t *rapid.T) {
		p, n := &api.PodSandbox{}, 0
		fill(t, p.ProtoReflect(), &n)
		want, got := map[string]string{}, map[string]string{}
		expect(want, p.ProtoReflect(), "Pod", all)
		actual(got, reflect.ValueOf(*convertPod(p)), "Pod")
		if d := compare(want, got); d != "" {
			t.Fatal(d)
		}
	})
}

func TestNilIn(t *testing.T) {
	if convertPod(nil) != nil || convertContainer(nil) != nil || convertResources(nil) != nil {
		t.Error("nil did not stay nil")
	}
	got := convertContainer(&api.Container{Linux: &api.LinuxContainer{Devices: []*api.LinuxDevice{nil}}, CDIDevices: []*api.CDIDevice{nil}})
	want := &lifecycle.Container{Devices: []lifecycle.Device{{}}, CDIDevices: []string{""}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// names maps the field names of a table's message to lifecycle names.
func names(of nestedTable) map[string]string {
	m := map[string]string{}
	for _, r := range of.describe(FieldRow{}, map[nestedTable]string{}) {
		if name := strings.TrimPrefix(r.Proto, "."); !strings.Contains(name, ".") {
			m[strings.TrimRight(name, "[]{}")] = strings.TrimPrefix(r.Lifecycle, ".")
		}
	}
	return m
}
