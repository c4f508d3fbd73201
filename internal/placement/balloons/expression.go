package balloons

import "github.com/trimtab/trimtab/internal/expression"

// Subject has the properties of a container that expressions can compare.
type Subject = expression.Subject

// matches reports whether the expression holds for a container.
func (e *ExpressionOptions) matches(s Subject) bool { return (*expression.Expression)(e).Matches(s) }

// fault returns the invalid key of the expression and what is wrong with it; what is "" if the expression is valid.
func (e *ExpressionOptions) fault() (key, what string) { return (*expression.Expression)(e).Fault() }
