package config

// maxSuggested bounds the names for which a nearest one is looked for: they come from outside.
const maxSuggested = 100

// Nearest returns the known name that a mistyped one most likely meant, or "".
func Nearest(name string, known []string) string {
	if len(name) > maxSuggested {
		return ""
	}
	best, distance := "", len(name)/2+1
	for _, k := range known {
		if d := editDistance(name, k); d < distance {
			best, distance = k, d
		}
	}
	return best
}

// editDistance is Levenshtein's, over bytes: names of keys are ASCII.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
