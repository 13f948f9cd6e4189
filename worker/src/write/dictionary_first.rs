//! Pages in which every dictionary-encoded page comes after its dictionary.
//!
//! The reading library takes that for granted and panics where a damaged file breaks it.

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};

/// A page reader that fails at a dictionary-encoded page without a dictionary.
pub struct DictionaryFirst<P> {
    pages: P,
    has_dictionary: bool,
}

impl<P: PageReader> DictionaryFirst<P> {
    pub fn new(pages: P) -> Self {
        Self { pages, has_dictionary: false }
    }
}

impl<P: PageReader> PageReader for DictionaryFirst<P> {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        match &page {
            Some(Page::DictionaryPage { .. }) => self.has_dictionary = true,
            #[allow(deprecated, reason = "PLAIN_DICTIONARY is what old writers call it")]
            Some(page)
                if !self.has_dictionary
                    && matches!(page.encoding(), Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY) =>
            {
                return Err(ParquetError::General("a page of dictionary indices comes without a dictionary".into()));
            }
            Some(_) | None => {}
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}

impl<P: PageReader> Iterator for DictionaryFirst<P> {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}
