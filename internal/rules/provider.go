package rules

import (
	"errors"
	"fmt"
	"reflect"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// provider gives CEL the types of the variables pod and container, in addition to CEL's own types.
type provider struct {
	types.Provider

	fields map[string]map[string]*types.FieldType // by name of the object type, and name of the field
	names  map[string][]string                    // the names of the fields, by name of the object type
	kinds  map[string]*types.Type                 // the object types, by name
}

func newProvider(known types.Provider) *provider {
	p := &provider{
		Provider: known, fields: map[string]map[string]*types.FieldType{}, names: map[string][]string{},
		kinds: map[string]*types.Type{},
	}
	for _, m := range podMembers {
		p.add(podType, m.name, m.kind, func(v *celObject) any { return m.get(v.subject) })
	}
	for _, m := range containerMembers {
		p.add(containerType, m.name, m.kind, func(v *celObject) any { return m.get(v.subject) })
	}
	for _, m := range resourceMembers {
		p.add(resourcesType, m.name, types.IntType, func(v *celObject) any { return m.of(v) })
	}
	return p
}

// add adds a field to an object type. value returns the value of the field.
func (p *provider) add(of *types.Type, name string, kind *types.Type, value func(*celObject) any) {
	owner := of.TypeName()
	if p.kinds[owner] == nil {
		p.kinds[owner], p.fields[owner] = types.NewTypeTypeWithParam(of), map[string]*types.FieldType{}
	}
	p.names[owner] = append(p.names[owner], name)
	p.fields[owner][name] = &types.FieldType{
		Type: kind,
		IsSet: func(target any) bool {
			v, ok := target.(*celObject)
			return ok && hasValue(value(v))
		},
		GetFrom: func(target any) (any, error) {
			v, ok := target.(*celObject)
			if !ok {
				return nil, fmt.Errorf("%T has no field %s", target, name)
			}
			return value(v), nil
		},
	}
}

// hasValue reports whether a field has a value, for the macro has().
func hasValue(value any) bool {
	switch v := value.(type) {
	case string:
		return v != ""
	case int64:
		return v != 0
	case map[string]string:
		return len(v) > 0
	}
	return true
}

// FindStructType returns the type with this name.
func (p *provider) FindStructType(name string) (*types.Type, bool) {
	if t := p.kinds[name]; t != nil {
		return t, true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames returns the names of a type's fields.
func (p *provider) FindStructFieldNames(name string) ([]string, bool) {
	if names := p.names[name]; names != nil {
		return names, true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType returns one field of a type.
func (p *provider) FindStructFieldType(owner, name string) (*types.FieldType, bool) {
	if fields := p.fields[owner]; fields != nil {
		f, ok := fields[name]
		return f, ok
	}
	return p.Provider.FindStructFieldType(owner, name)
}

// NewValue returns an error for the types of the variables, because expressions must not create objects of these types.
func (p *provider) NewValue(name string, fields map[string]ref.Val) ref.Val {
	if p.kinds[name] != nil {
		return types.NewErr("an expression cannot create a %s", name)
	}
	return p.Provider.NewValue(name, fields)
}

var errNotAValue = errors.New("a pod, a container and resources are not values by themselves; use one of their fields, such as pod.name")

// ConvertToNative returns an error, because a celObject exists only within CEL.
func (v *celObject) ConvertToNative(reflect.Type) (any, error) { return nil, errNotAValue }

// ConvertToType returns the object's type, for the CEL function type(). It returns an error for all other conversions.
func (v *celObject) ConvertToType(t ref.Type) ref.Val {
	if t == types.TypeType {
		return v.kind
	}
	return types.WrapErr(errNotAValue)
}

// Equal reports whether other is the same object.
func (v *celObject) Equal(other ref.Val) ref.Val { return types.Bool(v == other) }

// Type returns the object's type.
func (v *celObject) Type() ref.Type { return v.kind }

// Value returns the object itself.
func (v *celObject) Value() any { return v }

// ResolveName returns the value of the variable pod or container.
func (s *subject) ResolveName(name string) (any, bool) {
	switch name {
	case "pod":
		return &s.pod, true
	case "container":
		return &s.container, s.in.Container != ""
	}
	return nil, false
}

// Parent returns nil, because a subject has all variables of an expression.
func (s *subject) Parent() cel.Activation { return nil }
