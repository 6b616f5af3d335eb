//! Rust source to tokens: as much as the rules need, so that comments and strings cannot hide or feign a path.

use std::{iter::Peekable, str::Chars};

/// One token with its line, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) line: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name or keyword; raw identifiers without `r#`.
    Word(String),
    /// `::`.
    Path,
    /// Any other character that is no blank.
    Sign(char),
    /// A string, character, number or lifetime.
    Other,
}

impl Token {
    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Word(own) if own == word)
    }

    pub(super) fn is(&self, sign: char) -> bool {
        self.kind == Kind::Sign(sign)
    }

    pub(super) fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(word) => Some(word),
            Kind::Path | Kind::Sign(_) | Kind::Other => None,
        }
    }
}

/// All tokens of a file.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut lexer = Lexer { rest: text.chars().peekable(), line: 1, tokens: Vec::new() };
    while lexer.step() {}
    lexer.tokens
}

struct Lexer<'t> {
    rest: Peekable<Chars<'t>>,
    line: usize,
    tokens: Vec<Token>,
}

impl Lexer<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let there = self.peek() == Some(wanted);
        if there {
            self.next();
        }
        there
    }

    fn push(&mut self, kind: Kind, line: usize) {
        self.tokens.push(Token { kind, line });
    }

    fn step(&mut self) -> bool {
        let line = self.line;
        let Some(first) = self.next() else { return false };
        match first {
            '/' if self.eat('/') => while self.next().is_some_and(|c| c != '\n') {},
            '/' if self.eat('*') => self.block_comment(),
            '"' => self.string(line),
            '\'' => self.quote(line),
            ':' if self.eat(':') => self.push(Kind::Path, line),
            c if c.is_ascii_digit() => {
                self.word();
                self.push(Kind::Other, line);
            }
            c if c.is_alphanumeric() || c == '_' => self.name(c, line),
            c if c.is_whitespace() => {}
            c => self.push(Kind::Sign(c), line),
        }
        true
    }

    fn block_comment(&mut self) {
        let mut depth = 1;
        while depth > 0 {
            match self.next() {
                Some('*') if self.eat('/') => depth -= 1,
                Some('/') if self.eat('*') => depth += 1,
                Some(_) => {}
                None => return,
            }
        }
    }

    fn string(&mut self, line: usize) {
        while let Some(c) = self.next() {
            match c {
                '\\' => {
                    self.next();
                }
                '"' => break,
                _ => {}
            }
        }
        self.push(Kind::Other, line);
    }

    /// A string without escapes that ends with a quote and as many `#` as it began with.
    fn raw_string(&mut self, hashes: usize, line: usize) {
        while let Some(c) = self.next() {
            if c == '"' && (0..hashes).all(|_| self.eat('#')) {
                break;
            }
        }
        self.push(Kind::Other, line);
    }

    /// A character or a lifetime.
    fn quote(&mut self, line: usize) {
        match self.next() {
            Some('\\') => {
                self.next();
                while self.next().is_some_and(|c| c != '\'') {}
            }
            Some(_) if self.peek() == Some('\'') => {
                self.next();
            }
            Some(_) | None => {
                self.word();
            }
        }
        self.push(Kind::Other, line);
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(c) = self.rest.next_if(|c| c.is_alphanumeric() || *c == '_') {
            word.push(c);
        }
        word
    }

    fn name(&mut self, first: char, line: usize) {
        let name = format!("{first}{}", self.word());
        let prefix = matches!(name.as_str(), "r" | "b" | "c" | "br" | "cr");
        match self.peek() {
            Some('"') if prefix => {
                self.next();
                if name.ends_with('r') { self.raw_string(0, line) } else { self.string(line) }
            }
            Some('\'') if name == "b" => {
                self.next();
                self.quote(line);
            }
            Some('#') if prefix && name.ends_with('r') => {
                let mut hashes = 0;
                while self.eat('#') {
                    hashes += 1;
                }
                if self.eat('"') {
                    self.raw_string(hashes, line);
                } else {
                    let word = self.word();
                    self.push(Kind::Word(word), line);
                }
            }
            _ => self.push(Kind::Word(name), line),
        }
    }
}

/// Tokens without the items that only tests compile (`#[cfg(test)]`).
pub(super) fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut rest = tokens;
    while let Some((first, others)) = rest.split_first() {
        if is_cfg_test(rest) {
            rest = after_item(rest);
        } else {
            kept.push(first.clone());
            rest = others;
        }
    }
    kept
}

/// Whether tokens begin with `#[cfg(test)]`.
pub(super) fn is_cfg_test(tokens: &[Token]) -> bool {
    let [hash, open, cfg, bracket, test, close, end, ..] = tokens else { return false };
    let signs = hash.is('#') && open.is('[') && bracket.is('(') && close.is(')') && end.is(']');
    signs && cfg.is_word("cfg") && test.is_word("test")
}

/// What follows the item that tokens begin with: after its `;`, or after its block.
fn after_item(tokens: &[Token]) -> &[Token] {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Sign('{' | '(' | '[') => depth += 1,
            Kind::Sign(close @ ('}' | ')' | ']')) => {
                depth = depth.saturating_sub(1);
                if depth == 0 && close == '}' {
                    return &tokens[at + 1..];
                }
            }
            Kind::Sign(';') if depth == 0 => return &tokens[at + 1..],
            Kind::Sign(_) | Kind::Word(_) | Kind::Path | Kind::Other => {}
        }
    }
    &[]
}

#[test]
fn comments_strings_characters_and_lifetimes_are_no_words() {
    let text = r##"
        // std::fs
        /* a /* nested */ std::fs */
        let s = "std::fs \" x"; let r = r#"tokio " x"#; let b = b"git2"; let c = '"'; let q = '\''; let n = 1_u8;
        fn keep<'a>(r#type: &'a str) {}
    "##;
    let words: Vec<String> = tokens(text).iter().filter_map(Token::word).map(str::to_owned).collect();
    assert_eq!(
        words,
        ["let", "s", "let", "r", "let", "b", "let", "c", "let", "q", "let", "n", "fn", "keep", "type", "str"]
    );
}

#[test]
fn tokens_know_their_line() {
    let last = tokens("a\n\"x\ny\"\nb").pop().unwrap();
    assert!(last.is_word("b") && last.line == 4);
}

#[test]
fn items_for_tests_are_left_out_and_nothing_else() {
    let text = "fn a() { x[1]; } #[cfg(test)] mod tests { fn b() {} } #[cfg(test)] use c::d; #[cfg(test)] mod e; fn f() {}";
    let words: Vec<String> =
        without_tests(&tokens(text)).iter().filter_map(Token::word).map(str::to_owned).collect();
    assert_eq!(words, ["fn", "a", "x", "fn", "f"]);
}
