package egress

const (
	// maxLeap bounds how many bytes are leapt over at once.
	maxLeap = 64
	// leaps is the size of the table of leaps, which two bytes are hashed into.
	leaps = 1 << 12
)

// matcher finds any of several patterns in a stream of bytes, each byte of which it looks
// at once at most (Aho and Corasick). Where no pattern has begun it looks only at the end
// of the shortest that could (Wu and Manber). Its memory depends on the patterns alone.
type matcher struct {
	nodes []node
	first [256]bool // bytes that patterns begin with
	// leap is how far to go on if two bytes end the window, the beginning of which may be
	// that of a pattern. It is 0 if they do in some pattern.
	leap   [leaps]uint8
	window int
	// shortest is the length of the shortest pattern, and longest that of the longest.
	shortest, longest int
}

// node is what patterns have begun with. Most have one way on: that is kept in place, and
// others in a list.
type node struct {
	depth int // how many bytes that is
	match int // length of the longest pattern that ends here, or 0
	fail  int // the node of the longest suffix that is one, too

	next   int // by the byte, or 0
	byte   byte
	others map[byte]int
}

// newMatcher makes a matcher. Patterns are not empty.
func newMatcher(patterns []string) *matcher {
	m := &matcher{nodes: make([]node, 1)}
	for _, p := range patterns {
		m.add(p)
		m.longest = max(m.longest, len(p))
		if m.shortest == 0 || len(p) < m.shortest {
			m.shortest = len(p)
		}
	}
	m.link()
	m.measure(patterns)
	return m
}

// measure says how far can be leapt.
func (m *matcher) measure(patterns []string) {
	m.window = min(m.shortest, maxLeap)
	for i := range m.leap {
		m.leap[i] = uint8(max(m.window-1, 0)) //nolint:gosec // below maxLeap
	}
	for _, p := range patterns {
		for j := 1; j < m.window; j++ {
			at := &m.leap[pairOf(p[j-1], p[j])]
			*at = min(*at, uint8(m.window-1-j)) //nolint:gosec // below maxLeap
		}
	}
}

func pairOf(a, b byte) int { return (int(a)<<4 ^ int(b)) % leaps }

func (m *matcher) add(pattern string) {
	m.first[pattern[0]] = true
	at := 0
	for i := range len(pattern) {
		b := pattern[i]
		to := m.nodes[at].to(b)
		if to == 0 {
			to = len(m.nodes)
			m.nodes = append(m.nodes, node{depth: i + 1})
			m.nodes[at].set(b, to)
		}
		at = to
	}
	m.nodes[at].match = len(pattern)
}

// link says where to go on when a byte fits no pattern, breadth first.
func (m *matcher) link() {
	queue := make([]int, 1, len(m.nodes))
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		m.nodes[at].each(func(b byte, to int) {
			queue = append(queue, to)
			if at == 0 {
				return
			}
			fail := m.step(m.nodes[at].fail, b)
			m.nodes[to].fail = fail
			m.nodes[to].match = max(m.nodes[to].match, m.nodes[fail].match)
		})
	}
}

// step is the node after one more byte.
func (m *matcher) step(at int, b byte) int {
	for {
		if to := m.nodes[at].to(b); to != 0 {
			return to
		}
		if at == 0 {
			return 0
		}
		at = m.nodes[at].fail
	}
}

func (n *node) to(b byte) int {
	if n.next != 0 && n.byte == b {
		return n.next
	}
	return n.others[b]
}

func (n *node) set(b byte, to int) {
	if n.next == 0 {
		n.next, n.byte = to, b
		return
	}
	if n.others == nil {
		n.others = make(map[byte]int)
	}
	n.others[b] = to
}

func (n *node) each(do func(byte, int)) {
	if n.next != 0 {
		do(n.byte, n.next)
	}
	for b, to := range n.others {
		do(b, to)
	}
}

// scan goes over b, which follows what was seen in the state at, and calls found with
// where a match ends in b and how long it is. It returns the state after b.
func (m *matcher) scan(at int, b []byte, found func(end, length int)) int {
	for i := 0; i < len(b); i++ {
		if at == 0 {
			if i = m.skip(b, i); i == len(b) {
				return 0
			}
		}
		at = m.step(at, b[i])
		if n := m.nodes[at].match; n > 0 {
			found(i+1, n)
		}
	}
	return at
}

// skip returns where the next pattern may begin.
func (m *matcher) skip(b []byte, i int) int {
	for {
		for i+m.window <= len(b) && m.window > 1 {
			leap := m.leap[pairOf(b[i+m.window-2], b[i+m.window-1])]
			if leap == 0 {
				break
			}
			i += int(leap)
		}
		if i == len(b) || m.first[b[i]] {
			return i
		}
		i++
	}
}
