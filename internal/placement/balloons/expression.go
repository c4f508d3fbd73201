package balloons

import "github.com/trimtab/trimtab/internal/expression"

// Subject has the properties of a container that expressions can compare.
type Subject = expression.Subject

// matches reports whether the expression holds for a container.
func (e *ExpressionOptions) matches(s Subject) bool { return (*expression.Expression)(e).Matches(s) }

// fault returns which key of the expression is invalid, and the reason. The reason is "" if the expression is valid.
func (e *ExpressionOptions) fault() (key, reason string) { return (*expression.Expression)(e).Fault() }
