package rules

import (
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
)

// Limits of expressions. The unit of a cost is CEL's cost unit: about one unit for each step, and one for each ten
// characters that are compared.
const (
	// MaxExpression is the greatest length of an expression, in bytes.
	MaxExpression = 4096
	// MaxEstimate is the highest allowed estimate of an expression's cost. The estimate is for pods with maxEntries
	// labels.
	MaxEstimate = 2_000_000
	// MaxCost is the cost at which an evaluation is stopped.
	MaxCost = 20_000

	maxEntries = 128  // assumed number of entries of a map
	maxText    = 4096 // assumed bytes of a text
	maxLabel   = 317  // assumed bytes of a label's key or value: the length of the longest valid key, because values are shorter than keys
	maxNesting = 32   // levels of nested parts in an expression
)

// Position is the place of an error in an expression. Both numbers count from 1. Both are 0 if the place is unknown.
type Position struct{ Line, Column int }

// fault is an error in an expression.
type fault struct {
	Position
	message string
}

// environments has the CEL environments in which expressions are compiled.
type environments struct {
	podAndContainer *cel.Env // has the variables pod and container
	pods            *cel.Env // has only the variable pod
}

// newEnvironments makes the two environments.
func newEnvironments() (environments, error) {
	registry, err := types.NewRegistry()
	if err != nil {
		return environments{}, fmt.Errorf("create the type registry of CEL: %w", err)
	}
	pods, err := cel.NewCustomEnv(
		cel.StdLib(), cel.CustomTypeAdapter(registry), cel.CustomTypeProvider(newProvider(registry)),
		cel.ParserExpressionSizeLimit(MaxExpression), cel.ParserRecursionLimit(maxNesting),
		cel.Variable("pod", podType),
	)
	if err != nil {
		return environments{}, fmt.Errorf("prepare CEL: %w", err)
	}
	whole, err := pods.Extend(cel.Variable("container", containerType))
	if err != nil {
		return environments{}, fmt.Errorf("prepare CEL: %w", err)
	}
	return environments{podAndContainer: whole, pods: pods}, nil
}

// expression is a compiled expression.
type expression struct {
	program         cel.Program
	readsNamespaces bool // the expression uses labels of namespaces
	readsSpec       bool // the expression uses fields that come from the pod's spec
}

// compile compiles an expression. The result of the expression must be of the type want.
func compile(env *cel.Env, text string, want *types.Type) (*expression, []fault) {
	if len(text) > MaxExpression {
		return nil, []fault{{message: fmt.Sprintf("is %d bytes long; an expression may have at most %d", len(text), MaxExpression)}}
	}
	tree, issues := env.Compile(text)
	if issues != nil && issues.Err() != nil {
		var all []fault
		for _, e := range issues.Errors() {
			all = append(all, fault{Position{e.Location.Line(), e.Location.Column() + 1}, oneLine(e.Message)})
		}
		return nil, all
	}
	if got := tree.OutputType(); !got.IsExactType(want) {
		return nil, []fault{{Position{1, 1}, fmt.Sprintf("is of type %s, want %s", got, want)}}
	}
	estimate, err := env.EstimateCost(tree, costEstimator{})
	switch {
	case err != nil:
		return nil, []fault{{message: "CEL cannot estimate the cost of the expression: " + oneLine(err.Error())}}
	case estimate.Min > MaxCost:
		return nil, []fault{{Position{1, 1}, fmt.Sprintf("costs at least %d CEL cost units, but an evaluation is stopped at %d: nest fewer loops over labels and annotations", estimate.Min, MaxCost)}}
	case estimate.Max > MaxEstimate:
		return nil, []fault{{Position{1, 1}, fmt.Sprintf("may cost %d CEL cost units, but at most %d are allowed: nest fewer loops over labels and annotations", estimate.Max, MaxEstimate)}}
	}
	program, err := env.Program(tree, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(MaxCost))
	if err != nil {
		return nil, []fault{{Position{1, 1}, oneLine(err.Error())}}
	}
	return &expression{program: program, readsNamespaces: reads(tree, "namespaceLabels"), readsSpec: reads(tree, "kind", "cpu", "memoryRequest")}, nil
}

// reads reports whether an expression reads a field of one of these names.
func reads(tree *cel.Ast, names ...string) bool {
	read := ast.MatchDescendants(ast.NavigateAST(tree.NativeRep()), func(e ast.NavigableExpr) bool {
		return e.Kind() == ast.SelectKind && slices.Contains(names, e.AsSelect().FieldName())
	})
	return len(read) > 0
}

// oneLine returns a message of the CEL library on one line, without its long lists.
func oneLine(message string) string {
	message = strings.Join(strings.Fields(message), " ")
	if strings.HasPrefix(message, "Syntax error: ") {
		message, _, _ = strings.Cut(message, " expecting {")
		message = "is not valid CEL: " + strings.TrimPrefix(message, "Syntax error: ")
	}
	const most = 300
	if len(message) > most {
		message = strings.ToValidUTF8(message[:most-3], "") + "..."
	}
	return message
}

// costEstimator tells CEL the greatest sizes of maps and texts. From these, CEL estimates the cost of an expression.
type costEstimator struct{}

// EstimateSize returns the greatest size of a map or text. It returns nil for values whose size CEL computes itself.
func (costEstimator) EstimateSize(node cost.AstNode) *cost.SizeEstimate {
	var size cost.SizeEstimate
	switch kind := node.Type().Kind(); {
	case node.Expr() != nil && slices.Contains(inlineSizedKinds, node.Expr().Kind()):
		return nil
	case kind == types.MapKind && len(node.Path()) > 0:
		size = cost.RangedSizeEstimate(0, maxEntries)
	case kind == types.StructKind:
		size = cost.FixedSizeEstimate(1)
	case slices.ContainsFunc(node.Path(), func(name string) bool { return name == "labels" || name == "namespaceLabels" }):
		size = cost.RangedSizeEstimate(0, maxLabel)
	case kind == types.StringKind || kind == types.BytesKind:
		size = cost.RangedSizeEstimate(0, maxText)
	default:
		return nil
	}
	return &size
}

// inlineSizedKinds are the kinds of expressions whose size CEL computes itself, such as literals.
var inlineSizedKinds = []ast.ExprKind{ast.LiteralKind, ast.ListKind, ast.MapKind, ast.ComprehensionKind}

// EstimateCallCost leaves the costs of functions to CEL.
func (costEstimator) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate {
	return nil
}

// missingKeyError is the beginning of CEL's error for the look-up of a key that a map lacks.
const missingKeyError = "no such key"

// matches evaluates an expression of type bool. If the expression looks up a missing key, the result is false.
func (e *expression) matches(s *subject) (bool, error) {
	out, _, err := e.program.Eval(s)
	switch {
	case err != nil && strings.HasPrefix(err.Error(), missingKeyError):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%s", oneLine(err.Error()))
	}
	return out == types.True, nil
}

// evaluateNumber evaluates an expression of type int.
func (e *expression) evaluateNumber(s *subject) (int64, error) {
	out, _, err := e.program.Eval(s)
	if err != nil {
		return 0, fmt.Errorf("%s", oneLine(err.Error()))
	}
	n, _ := out.Value().(int64) // compile has checked the type
	return n, nil
}

// evaluateText evaluates an expression of type string.
func (e *expression) evaluateText(s *subject) (string, error) {
	out, _, err := e.program.Eval(s)
	if err != nil {
		return "", fmt.Errorf("%s", oneLine(err.Error()))
	}
	text, _ := out.Value().(string) // compile has checked the type
	return text, nil
}
